"""Step lines of programs that have a form of their own."""
