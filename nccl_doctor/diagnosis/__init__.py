"""From the answers of the rules to one report: folding, ranking, verdict."""
