"""`python -m nccl_doctor`, and the program `nccl-doctor`."""

import _signal  # type: ignore[import-not-found]  # built in; `signal` is a file that Ctrl-C may interrupt


def run() -> None:
    """Run the command. Until its modules are loaded, Ctrl-C ends it as it ends a program in C: without a traceback."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    import resource
    import sys

    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        sys.dont_write_bytecode = True  # Python 3.11 keeps what was cut at the limit, and no later start can load it
    from nccl_doctor.cli import main

    main.run()


if __name__ == "__main__":
    run()
