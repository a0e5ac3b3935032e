"""Readers: what a job or a node left behind, turned into rows of the fact tables."""
