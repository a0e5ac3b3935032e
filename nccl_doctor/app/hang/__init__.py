"""Notices that a job stands still, looks at its ranks twice, and collects what names the one that holds it up."""
