"""Collectors of a node: one module a subsystem, each with `collect(root)` that yields rows of facts.

A collector reads below a `Root`, which is the live node or a captured tree of it, so that both take the same path. It runs
in a child process of its own with a deadline (`collect`), because a sick driver or mount blocks whoever asks it.
"""
