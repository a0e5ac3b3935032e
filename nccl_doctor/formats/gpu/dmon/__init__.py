"""Tables in columns of blanks: `nvidia-smi dmon`, `nvidia-smi pmon` and `dcgmi dmon`."""
