"""Lines of one form: what they may tell is found once, and their numbers are read as columns."""
