"""The log engine: from the lines of a job log to counted events, and from these to rows of facts."""
