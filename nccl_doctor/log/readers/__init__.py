"""Other ways to read logs than `parallel`: with a cluster, and while they grow."""
