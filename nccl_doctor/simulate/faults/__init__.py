"""Faults that `simulate` can plant into a log, one module a class."""
