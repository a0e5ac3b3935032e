"""Output of node commands, Kubernetes objects and package lists."""
