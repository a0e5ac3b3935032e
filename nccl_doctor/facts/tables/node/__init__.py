"""Tables about a node: what collectors read and what is expected of it."""
