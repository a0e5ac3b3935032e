"""Derived tables about speed: nccl-tests, step times, scaling, traces, GPU samples."""
