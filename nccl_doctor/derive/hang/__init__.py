"""Derived tables about hangs: who is missing, behind, or only waiting."""
