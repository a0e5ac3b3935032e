"""The fact base: tables, the SQLite store, and facts on their way between nodes."""
