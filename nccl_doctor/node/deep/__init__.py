"""Tests that use the GPUs and network cards of a node for seconds or minutes, for a node without a job (`--deep`)."""
