"""nccl-doctor: what a distributed GPU job left behind, read as facts and answered as findings."""

__version__ = "0.1.0"
