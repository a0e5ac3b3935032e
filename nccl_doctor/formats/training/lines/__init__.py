"""Many lines at once: where they are in a block, which are alike, and the numbers in them as columns."""
