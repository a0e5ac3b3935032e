"""Problems that the person at the keyboard can solve."""


class UsageProblem(Exception):
    """A wrong option or an input that cannot be read. The text is one line; the command ends with status 2."""
