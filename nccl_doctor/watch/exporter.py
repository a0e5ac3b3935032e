"""Metrics over HTTP or in a file for the textfile collector of node_exporter."""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT = 9879  # free in the list of default port allocations that the Prometheus project keeps
TYPE = "text/plain; version=0.0.4; charset=utf-8"


def serve(address: tuple[str, int], page: Callable[[], str]) -> ThreadingHTTPServer:
    """Answer GET /metrics in threads. Raises OSError where the port is taken."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.split("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            body = page().encode()
            self.send_response(200)
            self.send_header("Content-Type", TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads a line for each scrape."""

    server = ThreadingHTTPServer(address, Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def write(file: Path, text: str) -> None:
    """Replace a file in one step, so that a collector never reads half of it. Raises OSError."""
    part = file.with_name(f".{file.name}.{time.monotonic_ns()}")
    part.write_text(text, "utf-8")
    part.replace(file)
