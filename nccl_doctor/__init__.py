"""nccl-doctor: diagnoses distributed GPU jobs from the logs and files that they leave behind."""

__version__ = "0.1.0"
