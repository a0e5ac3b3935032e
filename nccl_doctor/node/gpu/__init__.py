"""GPUs of a node: NVML, PCI, NUMA and processes that hang in the driver."""
