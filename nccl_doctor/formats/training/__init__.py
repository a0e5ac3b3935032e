"""Step lines of training programs."""
