"""Problems that the person at the keyboard can solve."""


class UsageProblem(Exception):
    """A wrong option or an input that cannot be read. The text is one line; the command ends with status 2."""


NONE_USABLE = "no folder for temporary files can be written to (TMPDIR names one)"


def why_not_kept(error: OSError) -> str:
    """Returns why a temporary file could not be written, with its folder."""
    import tempfile  # most commands keep no file

    try:
        folder = tempfile.gettempdir()
    except OSError:
        return f"cannot be kept: {NONE_USABLE}"
    return f"cannot be kept in {folder}: {error.strerror} (TMPDIR names another folder)"


def is_none_usable(error: OSError) -> bool:
    """Whether `tempfile` found no folder to write to."""
    return error.filename is None and "No usable temporary directory" in (error.strerror or "")
