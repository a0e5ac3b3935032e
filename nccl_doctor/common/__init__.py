"""What every other package may use: errors, levels, time stamps and the cache of parsed data files."""
