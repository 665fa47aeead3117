"""A stored workflow, sent to a collector or written to a file: the same spans as are sent live."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from retinue.errors import ConfigError
from retinue.events import AnyEvent
from retinue.masking import masked_text
from retinue.telemetry import otlp
from retinue.telemetry.content import SpanContent
from retinue.telemetry.environment import TelemetryConfig
from retinue.telemetry.posting import NotTaken, post
from retinue.telemetry.span import Span
from retinue.telemetry.spans import SpanReader


def spans_of(
    events: Sequence[AnyEvent], config: TelemetryConfig, clean: Callable[[str], str]
) -> Iterator[Span]:
    """Every span of a workflow; what is still open ends where its log does."""
    reader = SpanReader(SpanContent(clean, config.longest) if config.content else None)
    for event in events:
        yield from reader.read(event)
    yield from reader.cut()


def send(spans: Sequence[Span], config: TelemetryConfig) -> str:
    """Send them all, and return where to."""
    if config.traces is None:
        raise ConfigError(
            "OTEL_TRACES_EXPORTER says that no traces are sent", fix="unset it, or set it to otlp"
        )
    for start in range(0, len(spans), config.batch):
        try:
            post(config.traces, _request(spans[start : start + config.batch], config))
        except NotTaken as error:
            raise ConfigError(
                f"the collector at {masked_text(config.traces.url)} did not take the spans: {error}",
                fix="set OTEL_EXPORTER_OTLP_ENDPOINT to its address, or write a file with --otlp-file",
            ) from None
    return masked_text(config.traces.url)


def as_file(spans: Sequence[Span], config: TelemetryConfig) -> bytes:
    """One line of OTLP/JSON: what a collector's `otlpjsonfile` receiver reads."""
    message = otlp.traces(spans, config.resource, str(config.resource["service.version"]))
    return otlp.encoded(message, "http/json") + b"\n"


def _request(spans: Sequence[Span], config: TelemetryConfig) -> bytes:
    assert config.traces is not None
    message = otlp.traces(spans, config.resource, str(config.resource["service.version"]))
    return otlp.encoded(message, config.traces.protocol)
