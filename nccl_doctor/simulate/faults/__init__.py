"""Faults that `simulate` can put into a log, one module per class."""
