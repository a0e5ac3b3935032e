"""Which event of one file came before which symptom of another, by their clocks."""
