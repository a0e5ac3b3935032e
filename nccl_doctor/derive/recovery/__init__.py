"""Derivations about failures that did not matter in the end: what came back, and fall-backs that worked."""
