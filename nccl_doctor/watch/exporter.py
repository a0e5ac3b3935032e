"""Exports metrics over HTTP, or to a file for the textfile collector of node_exporter."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from nccl_doctor.common.atomic_write import replace_file

HOST = "127.0.0.1"  # names of hosts and findings are not for everybody who reaches the port
PORT = 9879  # unused in the default port allocations of the Prometheus project
TYPE = "text/plain; version=0.0.4; charset=utf-8"
LANDING = (
    "<!doctype html><html lang=en><title>nccl-doctor</title><h1>nccl-doctor watch</h1>"
    "<p><a href=/metrics>Metrics</a> of GPUs, network ports, hosts, ranks, jobs and findings for Prometheus."
    "<p>A dashboard for Grafana and alert rules lie in docs/monitoring of the source.</html>"
)


def parse_address(text: str) -> tuple[str, int]:
    """Returns host and port of `PORT`, `HOST:PORT`, `[::1]:PORT` or nothing. Raises ValueError."""
    host, _, port = text.rpartition(":")
    number = int(port or PORT)
    if not 0 <= number < 65_536:
        raise ValueError(f"{number} is not a port")
    return host.strip("[]") or HOST, number


def serve(address: tuple[str, int], page: Callable[[], str]) -> ThreadingHTTPServer:
    """Answer GET /metrics, and / with a link to it, in threads. Raises OSError when the port is in use."""
    import socket

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # seconds for a client that says nothing

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            if path == "/metrics":
                self._answer(page(), TYPE)
            elif path == "/":
                self._answer(LANDING, "text/html; charset=utf-8")
            else:
                self.send_error(404, "the paths are / and /metrics")

        def _answer(self, text: str, kind: str) -> None:
            body = text.encode("utf-8", "replace")
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a line per scrape is noise."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: a client that left is not an error, and a traceback helps nobody."""

    server = Server(address, Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def write_file(file: Path, text: str) -> None:
    """Replace a file atomically, so that a collector never reads half of it. Raises OSError."""
    replace_file(file, text.encode(), 0o644)
