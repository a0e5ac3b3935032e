"""`python -m nccl_doctor`, and the program `nccl-doctor`."""

import signal


def run() -> None:
    """Run the command. Until its modules are loaded, Ctrl-C ends it as it ends a program in C: without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from nccl_doctor.cli import main

    main.run()


if __name__ == "__main__":
    run()
