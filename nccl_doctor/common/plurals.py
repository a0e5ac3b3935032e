"""Numbers with their noun."""


def counted(number: int, noun: str) -> str:
    """`1 rank`, `1,200 ranks`, `2 processes`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
