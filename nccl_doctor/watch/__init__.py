"""The live screen and what it shows: records come in from feeds, become a state, and are judged by the same rules as logs."""
