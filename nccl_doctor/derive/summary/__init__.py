"""Derived tables that every report shows: job facts, measures, coverage."""
