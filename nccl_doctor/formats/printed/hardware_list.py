"""The devices that `lshw` lists, whose sizes and speeds say what they are made for."""


class HardwareList:
    """Whether the lines of a file are of such a list: `  *-network`, and what stands further to the right behind it."""

    def __init__(self) -> None:
        self.is_open = False

    def holds(self, line: bytes) -> bool:
        """Take a line; whether it belongs to the list."""
        if begins_device(line):
            self.is_open = True
        elif line[:1] not in (b" ", b"\t"):
            self.is_open = False
        return self.is_open


def begins_device(line: bytes) -> bool:
    """Whether a device begins in a line."""
    return line[:1] == b" " and line.lstrip(b" ").startswith(b"*-")
