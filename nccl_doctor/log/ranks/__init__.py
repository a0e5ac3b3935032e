"""Which rank and host wrote the lines of a log, and how far each rank came."""
