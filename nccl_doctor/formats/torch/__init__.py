"""Formats of PyTorch: flight recorder dumps and Kineto traces."""
