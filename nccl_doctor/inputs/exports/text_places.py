"""On which lines of a document the texts stand that a parser took out of it."""

_IN_VAIN = 8  # times a document may be searched for texts that are not found


class Places:
    """Finds the lines of texts that are asked for in the order in which they stand in a document."""

    def __init__(self, document: str) -> None:
        self.number = 1  # of the line of the last text that was found
        self.in_vain = 0  # characters that were searched for texts that are written in another way
        self._document, self._at = document, 0

    def of(self, text: str) -> int:
        """The number of the next line with such a text; that of the last one where there is none."""
        if self.in_vain <= _IN_VAIN * len(self._document):
            place = self._document.find(text, self._at)
            if place < 0:
                self.in_vain += len(self._document) - self._at
            else:
                self.number += self._document.count("\n", self._at, place)
                self._at = place + 1
        return self.number
