"""Client of NCCL's RAS service (src/ras/client.cc, since 2.24): plain text over TCP, port 28028."""

import os
import socket

ADDRESS = ("localhost", 28028)
TIMEOUT = 10.0  # seconds
MAX_ANSWER = 1 << 20  # bytes


def query_status(address: tuple[str, int] = ADDRESS, seconds: float = TIMEOUT) -> str:
    """Returns the verbose status of all communicators of the job on this node. Raises OSError without an answer."""
    with socket.create_connection(address, timeout=seconds) as connection:
        connection.sendall(b"CLIENT PROTOCOL 2\nTIMEOUT %d\nVERBOSE STATUS\n" % int(seconds))
        answer = bytearray()
        while len(answer) < MAX_ANSWER and (piece := connection.recv(1 << 16)):
            answer += piece
    return answer.decode("utf-8", "replace")


def address() -> tuple[str, int]:
    """Returns where the service listens: NCCL_RAS_ADDR, else NCCL's default."""
    host, colon, port = os.environ.get("NCCL_RAS_ADDR", "").rpartition(":")
    return (host or ADDRESS[0], int(port)) if colon and port.isdecimal() else ADDRESS
