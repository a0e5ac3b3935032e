"""Lines of other programs than NCCL: read one by one, and by their shape."""
