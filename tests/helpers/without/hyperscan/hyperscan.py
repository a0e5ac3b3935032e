"""Found before the real package by a test run with NCCL_DOCTOR_TEST_WITHOUT=hyperscan, in this process and its children."""

raise ImportError("hyperscan is switched off by NCCL_DOCTOR_TEST_WITHOUT")
