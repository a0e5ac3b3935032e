"""Installed software of a node and the settings of the task."""
