"""How collectors run: root folder, child processes with a deadline, kept trees, state between runs."""
