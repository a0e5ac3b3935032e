"""How wide the text of a terminal may be."""

NARROWEST, WIDEST = 30, 500  # columns that --width takes: narrower text is one letter a line
_MOST = 10_000  # of $COLUMNS, with which tables are asked for whole


def columns() -> int:
    """Those of $COLUMNS, else of the terminal, else 80, within what can be read."""
    import shutil  # takes its time to import, and a prologue has none

    return min(max(shutil.get_terminal_size((80, 24)).columns, NARROWEST), _MOST)
