"""GPUs of AMD, as `amd-smi` and `rocm-smi` show them."""
