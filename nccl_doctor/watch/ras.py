"""Asks NCCL's RAS service who does not answer (src/ras/client.cc, since 2.24): plain text over TCP, port 28028."""

import os
import socket
import sys

ADDRESS = ("localhost", 28028)
SECONDS = 10.0
MOST = 1 << 20  # bytes of an answer


def ask(address: tuple[str, int] = ADDRESS, seconds: float = SECONDS) -> str:
    """The verbose status of all communicators of the job that runs here. Raises OSError where nobody answers."""
    with socket.create_connection(address, timeout=seconds) as connection:
        connection.sendall(b"CLIENT PROTOCOL 2\nTIMEOUT %d\nVERBOSE STATUS\n" % int(seconds))
        answer = bytearray()
        while len(answer) < MOST and (piece := connection.recv(1 << 16)):
            answer += piece
    return answer.decode("utf-8", "replace")


def address() -> tuple[str, int]:
    """Where the service listens: NCCL_RAS_ADDR, else NCCL's default."""
    host, mark, port = os.environ.get("NCCL_RAS_ADDR", "").rpartition(":")
    return (host or ADDRESS[0], int(port)) if mark and port.isdecimal() else ADDRESS


if __name__ == "__main__":
    try:
        print(ask(address()))
    except OSError as error:
        print(
            f"no RAS service on {address()[0]}:{address()[1]}: {error.strerror or error}. It comes with NCCL 2.24 (NCCL_RAS_ENABLE=1)."
        )
        sys.exit(1)
