"""Horovod timelines."""
