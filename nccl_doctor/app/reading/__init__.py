"""Reads what the user named: each input with the reader of its format, logs by several processes."""
