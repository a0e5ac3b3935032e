"""InfiniBand, RoCE and EFA devices of a node."""
