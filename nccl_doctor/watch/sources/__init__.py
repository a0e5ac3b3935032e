"""Sources of records: child processes on nodes, logs, recordings, the demo."""
