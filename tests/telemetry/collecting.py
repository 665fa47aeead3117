"""A collector in a process of its own, and what arrived there."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RECEIVER = Path(__file__).with_name("receiver.py")


class Collector:
    def __init__(self, file: Path, mode: str) -> None:
        self.file = file
        self.process = subprocess.Popen(
            [sys.executable, str(RECEIVER), str(file), mode], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}"
        if mode == "absent":
            self.stop()

    def stop(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    @property
    def environ(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url}

    def requests(self, path: str = "/v1/traces") -> list[dict[str, Any]]:
        if not self.file.exists():
            return []
        found = [json.loads(line) for line in self.file.read_text().splitlines()]
        return [each for each in found if each["path"] == path]

    def spans(self) -> list[dict[str, Any]]:
        return [span for each in self.requests() for span in spans_in(each["message"])]

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Those of the last request, by name."""
        last = self.requests("/v1/metrics")[-1]["message"]
        return {each["name"]: each for each in last["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}


def spans_in(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Ids as hexadecimal text, and attributes as a dictionary: protobuf's own JSON has bytes in base64."""
    found: list[dict[str, Any]] = []
    for resource in message["resourceSpans"]:
        for span in resource["scopeSpans"][0]["spans"]:
            for name in ("traceId", "spanId", "parentSpanId"):
                if span.get(name) and "unknown" in message:
                    span[name] = base64.b64decode(span[name]).hex()
            span["attributes"] = {each["key"]: value_of(each["value"]) for each in span.get("attributes", ())}
            found.append(span)
    return found


def value_of(value: dict[str, Any]) -> Any:
    ((kind, found),) = value.items()
    if kind == "intValue":
        return int(found)
    return [value_of(each) for each in found["values"]] if kind == "arrayValue" else found
