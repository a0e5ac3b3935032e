"""Step lines of training programs in logs: found by literals, their numbers read in columns."""
