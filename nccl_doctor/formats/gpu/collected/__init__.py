"""Samples and sums of GPUs that collectors keep: each value under its name, or means over a job."""
