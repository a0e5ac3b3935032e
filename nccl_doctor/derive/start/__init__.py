"""Derivations about how a job starts: who came, and values that cannot be."""
