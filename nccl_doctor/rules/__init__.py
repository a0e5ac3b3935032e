"""The rule engine; the rules themselves are the TOML files in `rules/` at the top of the repository."""
