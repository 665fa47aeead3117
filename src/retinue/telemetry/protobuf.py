"""OTLP messages in protobuf: what OTLP says in JSON, by the field numbers of its `.proto` files.

Only what we send is in the tables. Called by `otlp`; the tests hold it against OpenTelemetry's own package.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

Form = Literal["text", "hex", "enum", "int64", "bool", "double", "fixed64", "fixed64s", "doubles"]
Fields = Mapping[str, tuple[int, "Form | Fields"]]
"""A field's number and how it is written: a form, or the fields of a message."""

_VALUE: dict[str, tuple[int, Form | Fields]] = {
    "stringValue": (1, "text"),
    "boolValue": (2, "bool"),
    "intValue": (3, "int64"),
    "doubleValue": (4, "double"),
}
_VALUE["arrayValue"] = (5, {"values": (1, _VALUE)})
_PAIR: Fields = {"key": (1, "text"), "value": (2, _VALUE)}
_RESOURCE: Fields = {"attributes": (1, _PAIR)}
_SCOPE: Fields = {"name": (1, "text"), "version": (2, "text")}
_EVENT: Fields = {"timeUnixNano": (1, "fixed64"), "name": (2, "text"), "attributes": (3, _PAIR)}
_LINK: Fields = {"traceId": (1, "hex"), "spanId": (2, "hex")}
_SPAN: Fields = {
    "traceId": (1, "hex"),
    "spanId": (2, "hex"),
    "parentSpanId": (4, "hex"),
    "name": (5, "text"),
    "kind": (6, "enum"),
    "startTimeUnixNano": (7, "fixed64"),
    "endTimeUnixNano": (8, "fixed64"),
    "attributes": (9, _PAIR),
    "events": (11, _EVENT),
    "links": (13, _LINK),
    "status": (15, {"message": (2, "text"), "code": (3, "enum")}),
}
_NUMBER: Fields = {
    "startTimeUnixNano": (2, "fixed64"),
    "timeUnixNano": (3, "fixed64"),
    "asDouble": (4, "double"),
    "attributes": (7, _PAIR),
}
_BUCKETS: Fields = {
    "startTimeUnixNano": (2, "fixed64"),
    "timeUnixNano": (3, "fixed64"),
    "count": (4, "fixed64"),
    "sum": (5, "double"),
    "bucketCounts": (6, "fixed64s"),
    "explicitBounds": (7, "doubles"),
    "attributes": (9, _PAIR),
    "min": (11, "double"),
    "max": (12, "double"),
}
_METRIC: Fields = {
    "name": (1, "text"),
    "unit": (3, "text"),
    "sum": (
        7,
        {"dataPoints": (1, _NUMBER), "aggregationTemporality": (2, "enum"), "isMonotonic": (3, "bool")},
    ),
    "histogram": (9, {"dataPoints": (1, _BUCKETS), "aggregationTemporality": (2, "enum")}),
}
TRACES: Fields = {
    "resourceSpans": (
        1,
        {"resource": (1, _RESOURCE), "scopeSpans": (2, {"scope": (1, _SCOPE), "spans": (2, _SPAN)})},
    )
}
METRICS: Fields = {
    "resourceMetrics": (
        1,
        {"resource": (1, _RESOURCE), "scopeMetrics": (2, {"scope": (1, _SCOPE), "metrics": (2, _METRIC)})},
    )
}
_VARINT, _FIXED64, _BYTES = 0, 1, 2


def encoded(message: Mapping[str, Any], fields: Fields) -> bytes:
    """The message in protobuf. A field that has no value here is left out."""
    parts: list[bytes] = []
    for name, value in message.items():
        number, form = fields[name]
        if isinstance(form, str):
            parts.append(_scalar(number, form, value))
            continue
        inner = cast("Sequence[Mapping[str, Any]]", value if isinstance(value, list) else [value])
        parts.extend(_sized(number, encoded(each, form)) for each in inner)
    return b"".join(parts)


def _scalar(number: int, form: Form, value: Any) -> bytes:
    match form:
        case "text":
            return _sized(number, str(value).encode("utf-8", "replace"))
        case "hex":
            return _sized(number, bytes.fromhex(value)) if value else b""
        case "enum" | "int64" | "bool":
            return _key(number, _VARINT) + _varint(int(value))
        case "double":
            return _key(number, _FIXED64) + struct.pack("<d", value)
        case "fixed64":
            return _key(number, _FIXED64) + struct.pack("<Q", int(value))
        case "fixed64s":
            return _sized(number, struct.pack(f"<{len(value)}Q", *map(int, value)))
        case "doubles":
            return _sized(number, struct.pack(f"<{len(value)}d", *value))


def _sized(number: int, data: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(data)) + data


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF  # a negative number is written in its 64 bits
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
