"""Network interfaces, routes, packet filters and ssh of a node."""
