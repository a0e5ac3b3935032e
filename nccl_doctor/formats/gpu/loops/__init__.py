"""Samples that programs print in a loop: `nvidia-smi dmon` and `pmon`, `dcgmi dmon`, `gpustat`."""
