"""Readers of files other than logs, one folder a family."""
