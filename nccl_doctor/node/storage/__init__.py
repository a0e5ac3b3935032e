"""Mounts and file systems of a node."""
