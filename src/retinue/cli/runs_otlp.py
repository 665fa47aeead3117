"""`retinue runs export --otlp`: a stored workflow as spans, to a collector or into a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from retinue import settings
from retinue.cli import exits
from retinue.events import AnyEvent
from retinue.telemetry import export
from retinue.telemetry.environment import configured
from retinue.view.paint import note


def export_spans(
    events: Sequence[AnyEvent], clean: Callable[[str], str], *, send: bool, file: Path | None
) -> int:
    loaded = settings.load(cwd=Path.cwd(), environ=os.environ)
    config = configured(loaded.settings.telemetry, os.environ)
    spans = list(export.spans_of(events, config, clean))
    if file is not None:
        file.write_bytes(export.as_file(spans, config))
        note(f"{file}: {len(spans)} spans")
    if send:
        note(f"{export.send(spans, config)}: {len(spans)} spans")
    return exits.OK
