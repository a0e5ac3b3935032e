"""Tables made from tables."""
