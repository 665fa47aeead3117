"""Where spans and metrics go: OpenTelemetry's usual environment variables, beside the settings `telemetry`.

Whether anything is sent at all is said by `TelemetrySettings.is_on`: nothing here is imported otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal
from urllib.parse import unquote, urlsplit

from retinue.errors import ConfigError
from retinue.settings import TelemetrySettings
from retinue.telemetry.otlp import OtlpProtocol
from retinue.telemetry.span import Attributes

log = logging.getLogger("retinue.telemetry")

SignalName = Literal["traces", "metrics"]
_OTLP = "OTEL_EXPORTER_OTLP"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURED = ("true", "1", "span_only", "span_and_event")
USUAL_ENDPOINT = "http://localhost:4318"
LONGEST_CONTENT = 32_768


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A collector, for one signal."""

    url: str
    headers: Mapping[str, str]
    protocol: OtlpProtocol
    gzip: bool
    timeout: float
    certificate: str | None = None
    client_key: str | None = None
    client_certificate: str | None = None


@dataclass(frozen=True, kw_only=True)
class TelemetryConfig:
    """What the environment and the settings say. A signal without a destination is not sent."""

    traces: Destination | None
    metrics: Destination | None
    resource: Attributes
    content: bool
    longest: int = LONGEST_CONTENT
    ratio: float = 1.0
    """The part of the traces that is sent."""
    queue: int = 2048
    batch: int = 512
    delay: float = 5.0
    interval: float = 60.0
    delta: bool = False


def configured(settings: TelemetrySettings, environ: Mapping[str, str]) -> TelemetryConfig:
    capture = environ.get(CAPTURE, "").strip().lower()
    return TelemetryConfig(
        traces=_destination("traces", settings, environ),
        metrics=_destination("metrics", settings, environ),
        resource=_resource(environ),
        content=settings.content or capture in _CAPTURED,
        longest=int(_number(environ, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", LONGEST_CONTENT)),
        ratio=_ratio(environ),
        queue=max(int(_number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", 2048)), 1),
        batch=max(int(_number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)), 1),
        delay=_number(environ, "OTEL_BSP_SCHEDULE_DELAY", 5000) / 1000,
        interval=_number(environ, "OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1000,
        delta=environ.get(f"{_OTLP}_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower() == "delta",
    )


def _destination(
    signal: SignalName, settings: TelemetrySettings, environ: Mapping[str, str]
) -> Destination | None:
    exporters = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp").lower().split(",")
    if "otlp" not in [each.strip() for each in exporters]:
        return None
    own = f"{_OTLP}_{signal.upper()}"

    def said(name: str) -> str:
        return (environ.get(f"{own}_{name}") or environ.get(f"{_OTLP}_{name}") or "").strip()

    url = environ.get(f"{own}_ENDPOINT", "").strip()
    if not url:
        base = settings.endpoint or environ.get(f"{_OTLP}_ENDPOINT", "").strip() or USUAL_ENDPOINT
        url = f"{base.rstrip('/')}/v1/{signal}"
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(
            f"the address of the collector is {url!r}, which is neither http nor https",
            fix=f"set {_OTLP}_ENDPOINT like {USUAL_ENDPOINT}",
        )
    timeout = _number({"": said("TIMEOUT")}, "", 10)
    return Destination(
        url=url,
        headers=dict(_pairs(said("HEADERS"))),
        protocol=_protocol(said("PROTOCOL")),
        gzip=said("COMPRESSION").lower() == "gzip",
        # The specification has milliseconds, OpenTelemetry's Python package seconds: nobody means 10 ms.
        timeout=timeout / 1000 if timeout >= 500 else timeout,
        certificate=said("CERTIFICATE") or None,
        client_key=said("CLIENT_KEY") or None,
        client_certificate=said("CLIENT_CERTIFICATE") or None,
    )


def _protocol(said: str) -> OtlpProtocol:
    match said or "http/protobuf":
        case "http/protobuf" | "http/json" as protocol:
            return protocol
        case other:
            raise ConfigError(
                f"{_OTLP}_PROTOCOL is {other!r}, and spans are sent over HTTP alone",
                fix=f"set {_OTLP}_PROTOCOL to http/protobuf or http/json, and its HTTP port (4318)",
            )


def _pairs(text: str) -> list[tuple[str, str]]:
    """`key=value,key=value`, with what is escaped by percent signs in either."""
    found: list[tuple[str, str]] = []
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip():
            found.append((unquote(key.strip()), unquote(value.strip())))
    return found


def _resource(environ: Mapping[str, str]) -> Attributes:
    found: Attributes = {"service.name": "retinue", "service.version": version("retinue")}
    found |= dict(_pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", "")))
    if name := environ.get("OTEL_SERVICE_NAME", "").strip():
        found["service.name"] = name
    return found


def _ratio(environ: Mapping[str, str]) -> float:
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower().removeprefix("parentbased_")
    if sampler == "always_off":
        return 0.0
    return (
        min(max(_number(environ, "OTEL_TRACES_SAMPLER_ARG", 1), 0.0), 1.0)
        if sampler == "traceidratio"
        else 1.0
    )


def _number(environ: Mapping[str, str], name: str, usual: float) -> float:
    text = environ.get(name, "").strip()
    try:
        return float(text) if text else usual
    except ValueError:
        log.warning("%s is %r, not a number: %g is used", name, text, usual)
        return usual
