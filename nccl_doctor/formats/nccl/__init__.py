"""Formats of NCCL and its tools: nccl-tests, RAS reports, Inspector, topology files."""
