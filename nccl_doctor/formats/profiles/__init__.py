"""Stacks of py-spy and summaries of profilers."""
