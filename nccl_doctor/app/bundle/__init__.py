"""`bundle`: copies of inputs that can be given away, with names, addresses and secrets replaced."""
