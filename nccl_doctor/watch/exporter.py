"""Exports metrics over HTTP, or to a file for the textfile collector of node_exporter."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from nccl_doctor.common.atomic_write import replace_file

PORT = 9879  # unused in the default port allocations of the Prometheus project
TYPE = "text/plain; version=0.0.4; charset=utf-8"


def serve(address: tuple[str, int], page: Callable[[], str]) -> ThreadingHTTPServer:
    """Answer GET /metrics in threads. Raises OSError when the port is in use."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.split("?")[0] != "/metrics":
                self.send_error(404, "the only path is /metrics")
                return
            body = page().encode()
            self.send_response(200)
            self.send_header("Content-Type", TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a line per scrape is noise."""

    server = ThreadingHTTPServer(address, Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def write_file(file: Path, text: str) -> None:
    """Replace a file atomically, so that a collector never reads half of it. Raises OSError."""
    replace_file(file, text.encode(), 0o644)
