"""An OTLP/HTTP receiver in a process of its own: `python receiver.py FILE MODE` prints its port, and writes what
it decodes, with OpenTelemetry's own package, as lines of JSON."""

from __future__ import annotations

import gzip
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FILE, MODE = sys.argv[1:3]
lock = threading.Lock()


def decoded(path: str, body: bytes) -> Any:
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest() if path == "/v1/traces" else ExportMetricsServiceRequest()
    message.ParseFromString(body)
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return {**MessageToDict(message), "unknown": size - message.ByteSize()}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if MODE == "hangs":
            threading.Event().wait()
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        found: Any
        if self.headers["Content-Type"] == "application/json":
            found = json.loads(body)
        else:
            found = decoded(self.path, body)
        kept = {"path": self.path, "headers": dict(self.headers), "message": found}
        with lock, open(FILE, "a") as file:
            file.write(json.dumps(kept) + "\n")
        self.send_response(503 if MODE == "refuses" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
server.daemon_threads = True
print(server.server_port, flush=True)
server.serve_forever()
