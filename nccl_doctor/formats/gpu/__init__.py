"""Samples and reports of GPUs: nvidia-smi, dcgmi, JSON monitors."""
