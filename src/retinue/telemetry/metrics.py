"""What spans add up to: durations, tokens, money and errors, as OTLP's histograms and sums.

Computed from the spans alone, so that no number can say something else than they do. Called by `live`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

from retinue.telemetry import names
from retinue.telemetry.otlp import attributes, nanoseconds
from retinue.telemetry.span import Span, Value

_CUMULATIVE, _DELTA = 2, 1
MOST_SERIES = 2000
"""Of one metric: names of agents and tools that models make up must not fill the memory."""
_OVERFLOW = (("otel.metric.overflow", True),)
Key = tuple[tuple[str, Value], ...]


@dataclass(slots=True)
class _Buckets:
    counts: list[int]
    sum: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")


@dataclass(slots=True)
class _Series:
    points: dict[Key, _Buckets] = field(default_factory=dict[Key, _Buckets])


class SpanMetrics:
    def __init__(self, since: float, *, delta: bool = False) -> None:
        self._since = since
        self._delta = delta
        self._series: dict[str, _Series] = {}

    def count(self, span: Span) -> None:
        """Add one span to everything that it counts for."""
        had = span.attributes
        failed = _of(span, names.ERROR_TYPE)
        if span.error:
            self._add(names.ERRORS, 1.0, _of(span, names.OPERATION, names.ERROR_TYPE, names.AGENT_NAME))
        match span.operation:
            case names.CHAT:
                asked = _of(span, names.OPERATION, names.PROVIDER, names.REQUEST_MODEL, names.RESPONSE_MODEL)
                self._add(names.DURATION_OF_CALL, span.seconds, asked + failed)
                for kind, name in (("input", names.INPUT_TOKENS), ("output", names.OUTPUT_TOKENS)):
                    if name in had:
                        self._add(names.TOKENS_OF_CALL, had[name], (*asked, (names.TOKEN_TYPE, kind)))
                if names.COST in had:
                    self._add(names.MONEY, had[names.COST], asked)
            case names.INVOKE_AGENT:
                agent = _of(span, names.AGENT_NAME)
                asked = agent + _of(span, names.PROVIDER, names.REQUEST_MODEL)
                self._add(names.DURATION_OF_AGENT, span.seconds, asked + failed)
                for name in (names.CALLS_OF_MODEL, names.CALLS_OF_TOOLS):
                    if name in had:
                        self._add(name, had[name], agent)
            case names.EXECUTE_TOOL:
                tool = _of(span, names.TOOL_NAME, names.TOOL_TYPE, names.AGENT_NAME)
                self._add(names.DURATION_OF_TOOL, span.seconds, tool + failed)
            case names.INVOKE_WORKFLOW:
                self._add(names.DURATION_OF_WORKFLOW, span.seconds, _of(span, names.WORKFLOW_NAME) + failed)
            case names.WAIT_FOR_PERSON:
                self._add(names.WAITING, span.seconds, _of(span, names.TOOL_NAME))
            case _:
                pass

    def taken(self, now: float) -> list[dict[str, Any]]:
        """Every metric with what was counted so far, or since it was last taken."""
        found = [self._metric(name, series, now) for name, series in self._series.items()]
        if self._delta:
            self._since, self._series = now, {}
        return found

    def _add(self, name: str, value: Value, key: Key) -> None:
        assert isinstance(value, int | float)
        points = self._series.setdefault(name, _Series()).points
        if key not in points and len(points) >= MOST_SERIES:
            key = _OVERFLOW
        bounds = names.BOUNDS.get(name, ())
        point = points.setdefault(key, _Buckets([0] * (len(bounds) + 1)))
        point.counts[bisect_left(bounds, value)] += 1
        point.sum += value
        point.low, point.high = min(point.low, value), max(point.high, value)

    def _metric(self, name: str, series: _Series, now: float) -> dict[str, Any]:
        bounds, temporality = names.BOUNDS.get(name), _DELTA if self._delta else _CUMULATIVE
        times = {"startTimeUnixNano": nanoseconds(self._since), "timeUnixNano": nanoseconds(now)}
        points = [
            {"attributes": attributes(dict(key)), **times, **_numbers(point, bounds)}
            for key, point in series.points.items()
        ]
        kept: dict[str, Any] = {"dataPoints": points, "aggregationTemporality": temporality}
        if bounds is None:
            return {"name": name, "unit": names.UNITS[name], "sum": {**kept, "isMonotonic": True}}
        return {"name": name, "unit": names.UNITS[name], "histogram": kept}


def _numbers(point: _Buckets, bounds: tuple[float, ...] | None) -> dict[str, Any]:
    if bounds is None:
        return {"asDouble": point.sum}
    return {
        "count": str(sum(point.counts)),
        "sum": point.sum,
        "bucketCounts": [str(count) for count in point.counts],
        "explicitBounds": list(bounds),
        "min": point.low,
        "max": point.high,
    }


def _of(span: Span, *wanted: str) -> Key:
    return tuple((name, span.attributes[name]) for name in wanted if name in span.attributes)
