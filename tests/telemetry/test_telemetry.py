"""Spans and metrics: what a collector in a process of its own receives, and what happens where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue import Answer, Retinue, tool
from retinue.errors import ConfigError, ModelError
from retinue.events import ApprovalRequested
from retinue.settings import TelemetrySettings
from retinue.store.base import RunFilter
from retinue.telemetry.environment import configured
from retinue.telemetry.export import as_file, send, spans_of
from telemetry.collecting import Collector, spans_in
from trees import Cast, agent

Start = Callable[..., Collector]
WORDS = ("a-prompt-of-mine", "an-argument-of-mine", "a-result-of-mine", "an-answer-of-mine")


@tool
def look(what: str) -> str:
    """Look at something."""
    return f"a-result-of-mine {what}"


@tool(effect="write")
def change(what: str) -> str:
    """Change something."""
    return what


AGENTS = (
    agent("boss", tools=("mid", "leaf", "look", "change")),
    agent("mid", tools=("leaf", "look")),
    agent("leaf", tools=("look",)),
)
TREE = Cast(
    {
        "boss": [[("mid", {"prompt": f"m{n}"}) for n in range(3)], "an-answer-of-mine"],
        "mid": [[("leaf", {"prompt": f"l{n}"}) for n in range(12)], "mid"],
        "leaf": [[("look", {"what": "an-argument-of-mine"})], "leaf"],
    }
)
ONE = {"boss": [[("look", {"what": "an-argument-of-mine"})], "an-answer-of-mine", "more"]}


def opened(environ: dict[str, str], model: Any = None, **options: Any) -> Retinue:
    settings = {
        "delegation.policy": "nested",
        "delegation.agent_calls": 60,
        "delegation.nested_children": 60,
        **options.pop("settings", {}),
    }
    options.setdefault("db", "memory:")
    return Retinue(
        model=model or Cast(ONE),
        agents=AGENTS,
        tools=[look, change],
        project=False,
        environ=environ,
        settings=settings,
        **options,
    )


def by_id(spans: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {span["spanId"]: span for span in spans}
    assert len(found) == len(spans), "no span is sent twice"
    return found


def of(spans: list[dict[str, Any]], operation: str) -> list[dict[str, Any]]:
    return [span for span in spans if span["attributes"]["gen_ai.operation.name"] == operation]


async def test_spans_of_a_tree_of_forty_runs_arrive_with_right_parents(collector: Start) -> None:
    receiver = collector()
    async with opened(receiver.environ, TREE) as retinue:
        report = await retinue.run("boss", "a-prompt-of-mine")
        rows = await retinue.runs(RunFilter(roots_only=False, limit=100))
    assert len(rows) == 40
    spans = receiver.spans()
    known = by_id(spans)
    assert {span["traceId"] for span in spans} == {spans[0]["traceId"]}
    assert [span["name"] for span in spans if not span.get("parentSpanId")] == ["invoke_workflow boss"]
    assert all(each["message"]["unknown"] == 0 for each in receiver.requests()), "every field is known"

    agents = {span["attributes"]["retinue.run.id"]: span for span in of(spans, "invoke_agent")}
    assert set(agents) == {row.run_id for row in rows}
    for row in rows:
        above = known[agents[row.run_id]["parentSpanId"]]
        assert above["attributes"]["retinue.run.id"] == (row.parent_id or row.run_id)
        assert above["name"] == (f"execute_tool {row.agent}" if row.parent_id else "invoke_workflow boss")
    for span in (*of(spans, "chat"), *of(spans, "execute_tool")):
        assert known[span["parentSpanId"]] == agents[span["attributes"]["retinue.run.id"]]
    for span in spans:
        if above := known.get(span.get("parentSpanId", "")):
            assert int(above["startTimeUnixNano"]) <= int(span["startTimeUnixNano"])
            assert int(span["endTimeUnixNano"]) <= int(above["endTimeUnixNano"])

    chats = of(spans, "chat")
    assert sum(span["attributes"]["gen_ai.usage.input_tokens"] for span in chats) == report.usage.input_tokens
    assert sum(span["attributes"]["gen_ai.usage.cost"] for span in chats) == pytest.approx(report.usage.cost)
    assert {span["attributes"]["gen_ai.provider.name"] for span in chats} == {"cast"}
    assert {span["kind"] for span in chats} == {"SPAN_KIND_CLIENT"}
    (workflow,) = of(spans, "invoke_workflow")
    assert workflow["attributes"]["retinue.tree.input_tokens"] == report.usage.input_tokens


async def test_metrics_count_what_the_spans_say(collector: Start) -> None:
    receiver = collector()
    async with opened(receiver.environ, TREE) as retinue:
        report = await retinue.run("boss", "go")
    metrics = receiver.metrics()

    def points(name: str) -> list[dict[str, Any]]:
        return metrics[name]["histogram"]["dataPoints"]

    assert sum(int(each["count"]) for each in points("gen_ai.invoke_agent.duration")) == 40
    assert sum(int(each["count"]) for each in points("gen_ai.execute_tool.duration")) == 39 + 36
    tokens = {
        value["value"]["stringValue"]: each["sum"]
        for each in points("gen_ai.client.token.usage")
        for value in each["attributes"]
        if value["key"] == "gen_ai.token.type"
    }
    assert tokens == {"input": report.usage.input_tokens, "output": report.usage.output_tokens}
    for each in points("gen_ai.client.operation.duration"):
        assert sum(map(int, each["bucketCounts"])) == int(each["count"])
        assert len(each["bucketCounts"]) == len(each["explicitBounds"]) + 1


async def test_a_stored_run_exported_later_gives_the_trace_that_was_sent_live(collector: Start) -> None:
    receiver = collector()
    async with opened(receiver.environ, TREE) as retinue:
        run_id = (await retinue.run("boss", "go")).run_id
        events = await retinue.store.events(run_id)
    config = configured(TelemetrySettings(), {})
    written = spans_in(json.loads(as_file(list(spans_of(events, config, str)), config)))
    live = by_id(receiver.spans())
    assert {each: span["parentSpanId"] for each, span in by_id(written).items()} == {
        each: span.get("parentSpanId", "") for each, span in live.items()
    }
    for each, span in by_id(written).items():
        assert span["traceId"] == live[each]["traceId"]
        assert span["startTimeUnixNano"] == live[each]["startTimeUnixNano"]
        assert span["attributes"] == live[each]["attributes"]


async def test_what_another_process_goes_on_with_hangs_where_it_began(
    collector: Start, tmp_path: Path
) -> None:
    """The first instance sends nothing; the second one hears only the rest, and reads what was before."""
    receiver, db = collector(), str(tmp_path / "runs.db")
    model = Cast({"boss": [[("change", {"what": "x"})], "done"]})
    async with opened({}, model, db=db, answering="ask") as first:
        run_id = await first.start("boss", "go")
        async for event in first.watch(run_id):
            if isinstance(event, ApprovalRequested):
                break
        await first.leave()
    async with opened(receiver.environ, model, db=db, yes=True) as second:
        await second.resume(run_id, take_over=True)
        assert (await second.wait(run_id)).outcome == "completed"
        events = await second.store.events(run_id)
    live = by_id(receiver.spans())
    whole = {span.span_id: span for span in spans_of(events, configured(TelemetrySettings(), {}), str)}
    assert set(live) < set(whole), "what the first one did is not sent by the second"
    assert {span["name"] for span in live.values()} >= {"invoke_workflow boss", "execute_tool change"}
    for each, span in live.items():
        assert (span["traceId"], span.get("parentSpanId", "")) == (
            whole[each].trace_id,
            whole[each].parent_id,
        )


async def test_each_turn_of_a_conversation_is_a_trace_that_follows_the_one_before(collector: Start) -> None:
    receiver = collector()
    async with opened(receiver.environ) as retinue:
        run_id = (await retinue.run("boss", "one")).run_id
        await retinue.resume(run_id, message="two")
        await retinue.wait(run_id)
    first, second = of(receiver.spans(), "invoke_workflow")
    assert first["traceId"] != second["traceId"]
    assert len(second["links"]) == 1
    assert "links" not in first
    assert {each["attributes"]["gen_ai.conversation.id"] for each in (first, second)} == {run_id}
    assert second["attributes"]["retinue.run.turn"] == 2


async def test_waiting_for_a_person_and_failures_are_told(collector: Start) -> None:
    receiver = collector()

    async def no(_: ApprovalRequested) -> Answer:
        return Answer(decision="reject")

    model = Cast({"boss": [[("change", {"what": "x"})], ModelError("an-answer-of-mine", kind="invalid")]})
    async with opened(receiver.environ, model, approve=no) as retinue:
        assert (await retinue.run("boss", "go")).status == "error"
    spans = receiver.spans()
    (waited,) = of(spans, "wait_for_person")
    assert waited["attributes"]["retinue.approval.decision"] == "reject"
    (tool_span,) = of(spans, "execute_tool")
    assert tool_span["attributes"]["error.type"] == "rejected"
    (workflow,) = of(spans, "invoke_workflow")
    assert workflow["status"] == {"code": "STATUS_CODE_ERROR"}
    assert workflow["attributes"]["retinue.outcome"] == "error"
    assert of(spans, "chat")[-1]["status"]["code"] == "STATUS_CODE_ERROR"
    errors = receiver.metrics()["retinue.errors"]["sum"]["dataPoints"]
    assert sum(each["asDouble"] for each in errors) == len([span for span in spans if "status" in span])


@pytest.mark.parametrize("way", ["nobody", "environment", "setting"])
async def test_what_was_said_is_sent_only_where_a_person_wants_it(collector: Start, way: str) -> None:
    receiver = collector()
    environ = {**receiver.environ, "OPENAI_API_KEY": "not-a-word-anybody-may-see"}
    if way == "environment":
        environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"
    settings = {"telemetry.content": True} if way == "setting" else {}
    async with opened(environ, settings=settings) as retinue:
        await retinue.run("boss", "a-prompt-of-mine with not-a-word-anybody-may-see")
    text = json.dumps(receiver.spans())
    assert [word for word in WORDS if word in text] == ([] if way == "nobody" else list(WORDS))
    assert "not-a-word-anybody-may-see" not in text


async def test_json_compression_headers_and_resource_are_as_the_environment_says(collector: Start) -> None:
    receiver = collector()
    environ = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{receiver.url}/v1/traces",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b,other=c",
        "OTEL_SERVICE_NAME": "desk",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
    }
    async with opened(environ) as retinue:
        await retinue.run("boss", "go")
    (request,) = receiver.requests()
    headers = {name.lower(): value for name, value in request["headers"].items()}
    assert (headers["x-key"], headers["other"]) == ("a b", "c")
    resource = request["message"]["resourceSpans"][0]["resource"]["attributes"]
    told = {each["key"]: each["value"]["stringValue"] for each in resource}
    assert (told["service.name"], told["deployment.environment.name"]) == ("desk", "test")
    assert not receiver.requests("/v1/metrics")


@pytest.mark.parametrize("mode", ["hangs", "refuses", "absent"])
async def test_a_collector_that_does_not_take_spans_harms_nothing(
    collector: Start, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = collector(mode)
    short = {
        "OTEL_EXPORTER_OTLP_TIMEOUT": "0.3",
        "OTEL_BSP_SCHEDULE_DELAY": "10",
        "OTEL_BSP_MAX_QUEUE_SIZE": "20",
    }
    async with opened({**receiver.environ, **short}, TREE) as retinue:
        report = await retinue.run("boss", "go")
    assert (report.outcome, report.text) == ("completed", "an-answer-of-mine")
    said = [record.getMessage() for record in caplog.records if record.name == "retinue.telemetry"]
    assert len(said) == 2, "once that something is dropped, and at the end how much"


async def test_a_protocol_that_is_not_spoken_is_said_and_nothing_is_sent(
    collector: Start, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = collector()
    async with opened({**receiver.environ, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) as retinue:
        assert (await retinue.run("boss", "go")).ok
    assert "http/protobuf" in caplog.text
    assert not receiver.spans()


async def test_half_of_the_traces_are_sent_where_half_are_wanted(collector: Start) -> None:
    receiver = collector()
    half = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    async with opened({**receiver.environ, **half}) as retinue:
        for n in range(12):
            await retinue.start("boss", "go", run_id=f"r{n:017d}")
            await retinue.wait(f"r{n:017d}")
    counted = Counter(span["traceId"] for span in receiver.spans())
    assert 0 < len(counted) < 12
    assert set(counted.values()) == {5}, "a trace is sent whole or not at all"


def test_with_tracing_off_nothing_of_it_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from retinue import Retinue\n"
        "Retinue(model='offline', db='memory:', environ={}).run_sync('general', 'what is 2+2?')\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'opentelemetry' "
        "or name.startswith('retinue.telemetry')])\n"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.strip()) == (0, "[]"), ended.stderr


def test_spans_are_sent_where_a_collector_is_named_and_nobody_forbids_it() -> None:
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    assert not TelemetrySettings().is_on({})
    assert TelemetrySettings().is_on(named)
    assert TelemetrySettings(endpoint="http://127.0.0.1:4318").is_on({})
    assert TelemetrySettings(enabled="on").is_on({})
    assert not TelemetrySettings(enabled="off").is_on(named)
    assert not TelemetrySettings(enabled="on").is_on({**named, "OTEL_SDK_DISABLED": "true"})


async def test_a_collector_that_is_not_there_is_named_and_what_to_do(collector: Start) -> None:
    gone = collector("absent")
    async with opened({}) as retinue:
        events = await retinue.store.events((await retinue.run("boss", "go")).run_id)
    config = configured(TelemetrySettings(), {**gone.environ, "OTEL_EXPORTER_OTLP_TIMEOUT": "0.1"})
    with pytest.raises(ConfigError, match="--otlp-file") as refused:
        send(list(spans_of(events, config, str)), config)
    assert gone.url in str(refused.value)


TRACE, ABOVE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (f"00-{TRACE}-{ABOVE}-01", True),
        (f"00-{TRACE.upper()}-{ABOVE}-01", False),
        (f"00-{'0' * 32}-{ABOVE}-01", False),
        (f"ff-{TRACE}-{ABOVE}-01", False),
        ("nonsense", False),
        ("", False),
    ],
)
async def test_a_run_stands_below_the_span_of_whoever_started_it(
    collector: Start, given: str, taken: bool
) -> None:
    there = collector()
    async with opened(there.environ, Cast(ONE)) as retinue:
        run_id = await retinue.start("boss", "a", traceparent=given)
        await retinue.wait(run_id)
        config = configured(TelemetrySettings(), there.environ)
        stored = list(spans_of(await retinue.store.events(run_id), config, str))
    spans = there.spans()
    workflow = next(span for span in spans if span["name"] == "invoke_workflow boss")
    assert (workflow.get("parentSpanId") == ABOVE) is taken
    assert len({span["traceId"] for span in spans}) == 1
    assert (spans[0]["traceId"] == TRACE) is taken
    assert {span.span_id for span in stored} == {span["spanId"] for span in spans}
    assert {span.trace_id for span in stored} == {spans[0]["traceId"]}
