"""Spans and metrics as OTLP requests, in JSON or protobuf. Sends nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from retinue.telemetry import protobuf
from retinue.telemetry.span import Attributes, Span, Value

OtlpProtocol = Literal["http/protobuf", "http/json"]
SCOPE = "retinue"
_KINDS = {"internal": 1, "client": 3}
_ERROR = 2
CONTENT_TYPES: dict[OtlpProtocol, str] = {
    "http/protobuf": "application/x-protobuf",
    "http/json": "application/json",
}


def traces(spans: Iterable[Span], resource: Attributes, version: str) -> dict[str, Any]:
    scoped = {"scope": {"name": SCOPE, "version": version}, "spans": [_span(each) for each in spans]}
    return {"resourceSpans": [{"resource": {"attributes": attributes(resource)}, "scopeSpans": [scoped]}]}


def metrics(points: Sequence[Mapping[str, Any]], resource: Attributes, version: str) -> dict[str, Any]:
    scoped = {"scope": {"name": SCOPE, "version": version}, "metrics": list(points)}
    return {"resourceMetrics": [{"resource": {"attributes": attributes(resource)}, "scopeMetrics": [scoped]}]}


def encoded(message: Mapping[str, Any], protocol: OtlpProtocol) -> bytes:
    """A request of `traces` or `metrics`, as bytes."""
    if protocol == "http/json":
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
    kind = protobuf.TRACES if "resourceSpans" in message else protobuf.METRICS
    return protobuf.encoded(message, kind)


def _span(span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": nanoseconds(span.start),
        "endTimeUnixNano": nanoseconds(span.end),
        "attributes": attributes(span.attributes),
    }
    if span.marks:
        found["events"] = [
            {"timeUnixNano": nanoseconds(at.at), "name": at.name, "attributes": attributes(at.attributes)}
            for at in span.marks
        ]
    if span.links:
        found["links"] = [{"traceId": link.trace_id, "spanId": link.span_id} for link in span.links]
    if span.error:
        found["status"] = {"code": _ERROR, **({"message": span.message} if span.message else {})}
    return found


def nanoseconds(at: float) -> str:
    return str(round(at * 1e6) * 1000)  # a float of today's seconds is exact to about a microsecond


def attributes(given: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in given.items()]


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [{"stringValue": each} for each in value]}}
