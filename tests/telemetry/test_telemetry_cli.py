"""`retinue runs export --otlp`, and `retinue ask` with a collector in its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from telemetry.collecting import Collector, spans_in


def retinue(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
    return subprocess.run(
        [sys.executable, "-m", "retinue", *arguments],
        cwd=folder,
        env={**own, "HOME": str(folder), **environ},
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_run_is_sent_while_it_runs_and_the_same_when_it_is_exported(
    tmp_path: Path, collector: Callable[..., Collector]
) -> None:
    live, later = collector(), collector("takes too")
    asked = retinue(tmp_path, "ask", "what is 2+2?", "--model", "offline", **live.environ)
    assert asked.returncode == 0, asked.stderr
    file = tmp_path / "spans.json"
    sent = retinue(tmp_path, "runs", "export", "last", "--otlp", "--otlp-file", str(file), **later.environ)
    assert sent.returncode == 0, sent.stderr
    ids = {span["spanId"] for span in live.spans()}
    assert ids
    assert ids == {span["spanId"] for span in later.spans()}
    assert ids == {span["spanId"] for span in spans_in(json.loads(file.read_text()))}


def test_the_command_line_takes_its_parent_from_the_environment(
    tmp_path: Path, collector: Callable[..., Collector]
) -> None:
    there = collector()
    trace, above = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    given = {"TRACEPARENT": f"00-{trace}-{above}-01", **there.environ}
    asked = retinue(tmp_path, "ask", "what is 2+2?", "--model", "offline", **given)
    assert asked.returncode == 0, asked.stderr
    spans = there.spans()
    assert {span["traceId"] for span in spans} == {trace}
    assert [span["name"] for span in spans if span.get("parentSpanId") == above] == [
        "invoke_workflow general"
    ]
