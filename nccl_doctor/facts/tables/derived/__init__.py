"""Tables that derivations make from the others; see `derive`."""
