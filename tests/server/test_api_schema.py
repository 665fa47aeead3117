"""The API keeps what its description promises, whatever is sent to it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import requests
from api import PLENTY, SECRETS, serving
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from retinue.app import Retinue
from retinue.events import AnyEvent
from retinue.server import create_app
from retinue.server.about import TotalsOut
from retinue.server.guard import OPEN
from retinue.server.models import ReportOut, RunOut, SourceOut
from retinue.server.schema import openapi
from retinue.server.security import ROLES
from retinue.store.base import RunRow, Totals
from retinue.testing import ScriptedModel, call
from retinue.tools.base import tool
from retinue.types import Report, Shortfall, Source


def application(folder: Path) -> Any:
    return create_app(Retinue(model="offline", db="memory:", cwd=folder, environ={}))


def test_every_route_says_who_may_use_it_and_how_it_refuses(folder: Path) -> None:
    described = openapi(application(folder))
    count = 0
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            count += 1
            where = f"{method} {path}"
            assert operation["x-role"] in (ROLES if path not in OPEN else ("none",)), where
            assert operation["description"], where
            assert {"401", "403", "404", "413", "421", "422", "429"} <= set(operation["responses"]), where
            refusal = operation["responses"]["422"]["content"]["application/json"]["schema"]
            assert refusal == {"$ref": "#/components/schemas/ErrorBody"}, where
    assert count >= 30


async def test_no_route_takes_a_parameter_that_it_does_not_describe(folder: Path) -> None:
    """As one mechanism for all of them: a filter with a slip in its name would show everything."""
    async with serving(ScriptedModel(["done"]), folder) as api:
        for path, operations in openapi(api.app)["paths"].items():
            for method, operation in operations.items():
                address = re.sub(r"{\w+}", "x1", path)
                answer = await api(
                    method.upper(), f"{address}?nonsense=1", *([{}] if method == "post" else [])
                )
                where = f"{method} {path}: {answer}"
                assert (answer.status, answer.code) == (422, "invalid"), where
                assert "has no parameter 'nonsense'" in answer.body["error"]["message"], where
                takes = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
                fix = answer.body["error"]["fix"]
                assert fix == (f"it takes {', '.join(sorted(takes))}" if takes else "it takes none"), where
        slip = await api("GET", "runs?stauts=running")
        assert slip.body["error"]["fix"] == "did you mean 'status'?"
        assert (await api("GET", "runs?status=running")).status == 200


async def test_the_description_says_what_is_answered_to_a_body_that_cannot_be_read(folder: Path) -> None:
    described = openapi(application(folder))["paths"]["/api/v1/runs"]["post"]["responses"]
    headers = {"Content-Type": "application/json"}
    async with serving(ScriptedModel(["done"]), folder) as api:
        for body, status, words in (
            (b'{"prompt": ', 422, "not valid JSON"),
            (b'{"prompt": "\xff"}', 400, "not UTF-8"),
        ):
            answer = await api("POST", "runs", data=body, headers=headers)
            assert answer.status == status, answer
            assert words in described[str(status)]["description"]


def test_the_description_has_every_kind_of_event(folder: Path) -> None:
    described = openapi(application(folder))
    schemas = described["components"]["schemas"]
    kinds = {str(kind.__struct_config__.tag) for kind in AnyEvent.__args__}
    named = {reference["$ref"].rpartition("/")[2] for reference in schemas["Event"]["anyOf"]}
    assert {schemas[name]["properties"]["type"]["enum"][0] for name in named} == kinds
    text = msgspec.json.encode(described).decode()
    for reference in set(text.split('"$ref":"#/components/schemas/')[1:]):
        assert reference.partition('"')[0] in schemas


PARTS = {
    *(field for field in RunRow.__struct_fields__ if field.startswith("tree_")),  # its `total`
    *Shortfall.__struct_fields__,  # its `shortfall`
    *("waiting", "began_at", "idle", "waited", "held_since", "owner"),  # what its times and outcome are from
    "metadata_json",  # its `metadata`
}


def test_the_api_shows_every_fact_of_a_run_and_of_a_report() -> None:
    for inside, outside in ((RunRow, RunOut), (Report, ReportOut), (Totals, TotalsOut), (Source, SourceOut)):
        hidden = set(inside.__struct_fields__) - set(outside.model_fields)
        assert hidden <= {"aliases", *PARTS}, (inside, hidden)


async def test_real_events_fit_the_description(folder: Path) -> None:
    from jsonschema import Draft202012Validator

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        return "saw"

    async with serving(ScriptedModel([call("look", what="x"), "done"]), folder, tools=[look]) as api:
        run_id = await api.ask()
        events = await api.ended(run_id)
        described = await api.get("openapi.json")
        schema = {"$ref": "#/components/schemas/Event", "components": described["components"]}
        validator = Draft202012Validator(schema)
        for event in events:
            assert not list(validator.iter_errors(event)), event["type"]


@pytest.fixture
def running(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A server in a thread of its own with a few runs in it: its address and their ids."""
    ready, stop = threading.Event(), threading.Event()
    found: list[Any] = []

    async def main() -> None:
        @tool(effect="write")
        async def mark(what: str) -> str:
            """Leave a mark."""
            return "marked"

        def answer(request: Any) -> Any:
            return call("mark", what="x") if "wait" in request.messages[0].text else "**done**"

        async with serving(
            ScriptedModel(answer), folder, with_tokens=True, tools=[mark], limits=PLENTY
        ) as nobody:
            api = nobody.as_role("admin")
            ids = [await api.ask("one"), await api.ask("please wait")]
            await api.ended(ids[0])
            found.extend((api.url, ids))
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(30)
        yield found[0], found[1]
    finally:
        stop.set()
        thread.join(30)


# A stream that works never ends by itself; those have tests of their own.
STREAMS = ("/api/v1/stream", "/api/v1/runs/{run_id}/stream")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_that_is_sent_breaks_the_api(running: tuple[str, list[str]]) -> None:
    """No answer is a 500, none has a status or a form that is not described."""
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.core.result import Ok
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    url, ids = running
    headers = {"Authorization": f"Bearer {SECRETS['admin']}"}
    described = requests.get(f"{url}/api/v1/openapi.json", headers=headers, timeout=30).json()
    schema = schemathesis.openapi.from_dict(described)
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]
    seen: Counter[tuple[str, int]] = Counter()
    session = requests.Session()

    def attack(operation: Any, mode: Any) -> None:
        @settings(
            max_examples=20,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=cast(
                "list[HealthCheck]", list(HealthCheck)
            ),  # its metaclass hides the type
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            # Half of the time about a run that is there, unless that would take it away.
            number = sum(seen.values())
            if number % 2 and operation.method != "delete" and "run_id" in (case.path_parameters or {}):
                case.path_parameters["run_id"] = ids[number // 2 % len(ids)]
            response = case.call(base_url=url, headers=headers, session=session, timeout=60)
            seen[operation.label, response.status_code] += 1
            case.validate_response(response, checks=checks)

        with contextlib.suppress(Unsatisfiable):  # where nothing can be given, nothing can be given wrong
            check()

    found = list(schema.get_all_operations())
    operations = [one.ok() for one in found if isinstance(one, Ok)]
    assert len(operations) == len(found)
    for operation in operations:
        if operation.path in STREAMS:
            continue
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            attack(operation, mode)
    statuses = Counter[int]()
    for (_, status), count in seen.items():
        statuses[status] += count
    print(
        f"\n{sum(seen.values())} requests to {len(operations)} operations: {dict(sorted(statuses.items()))}"
    )
    assert statuses[200] > 50
    assert max(statuses) < 500
