"""What `compare` does: reads runs, puts the same queries to each, and says what differs."""
