"""What tools and agents give code: a text, as ever, that has fields; the same in both engines, and after a resume."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.app import Retinue
from retinue.errors import ToolError
from retinue.events import AnyEvent, ToolCalled, ToolReturned
from retinue.sandbox.base import CallResult, Engine, SandboxLimits
from retinue.sandbox.cpython import why_not
from retinue.sandbox.fields import with_fields
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from retinue.types import ModelRequest
from retinue.web.framing import frame
from trees import Cast, agent, results, told, turn

pytest.importorskip("pydantic_monty")

ENGINES = [
    "monty",
    pytest.param("cpython", marks=pytest.mark.skipif(why_not() is not None, reason="not on this machine")),
]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@tool(effect="read")
async def weigh(thing: str) -> Any:
    """Weigh a thing.

    Args:
        thing: what
    """
    if thing == "nothing":
        raise ToolError("there is nothing to weigh")
    return {"thing": thing, "grams": [1, 2]} if thing != "words" else "heavy"


@tool(effect="read")
async def page() -> str:
    """A page of somebody else."""
    return frame("the words of a page", what="web page")


def child(request: ModelRequest) -> Any:
    asked = told(request)[0]
    if "fail" in asked:
        raise RuntimeError("the child broke")
    return "the words of a stranger" if "count" not in asked else '{"n": 7}'


class Programs:
    """A coder that runs these snippets one after the other and answers with what came of the last."""

    def __init__(self, *codes: str, engine: str = "monty") -> None:
        self.codes, self.engine = codes, engine
        self.store = MemoryStore()

    def play(self, request: ModelRequest) -> Any:
        if turn(request) < len(self.codes):
            return [("run_code", {"code": self.codes[turn(request)]})]
        return results(request)[-1].text

    def app(self, store: MemoryStore) -> Retinue:
        return Retinue(
            model=Cast({"coder": self.play, "helper": child, "counter": child}),
            db=store,
            tools=[weigh, page],
            agents=[
                agent(
                    "coder",
                    mode="code",
                    tools=("helper", "counter", "weigh", "page", "delegate_task", "run_code"),
                ),
                agent("helper"),
                agent("counter", output_schema=SCHEMA),
            ],
            environ={},
            settings={"code.engine": self.engine, "delegation.tools": ["agents", "delegate_task"]},
        )

    async def run(self) -> str:
        async with self.app(self.store) as retinue:
            report = await retinue.run("coder", "go")
        self.run_id = report.run_id
        return report.text

    async def log(self) -> list[AnyEvent]:
        return await self.store.events(self.run_id)


def bare(said: str) -> str:
    """The output without the frame that it has once a child's words came into the program."""
    first, *lines, last = said.splitlines()
    assert first.startswith("[output of code ")
    assert last.endswith(" ends]")
    return "\n".join(lines)


@pytest.mark.parametrize("engine_name", ENGINES)
async def test_an_agent_gives_code_its_report_by_fields(engine_name: str) -> None:
    code = """
r = await helper(prompt="say something")
facts = [r.success, r.is_error, r.status, r.incomplete, r.error, r.data, r.sources, sorted(r.metrics)]
c = await counter(prompt="count")
d = await delegate_task(agent_id="helper", prompt="say something")
print(facts, r.text, r.child_id != d.child_id, len(r.child_id) > 5, c.data["n"] + 1, d.text)
"""
    said = await Programs(code, engine=engine_name).run()
    facts = (
        "[True, False, 'completed', None, None, None, [], ['duration_ms', 'tokens_input', 'tokens_output']]"
    )
    assert f"{facts} the words of a stranger True True 8 the words of a stranger\n" in said


@pytest.mark.parametrize("engine_name", ENGINES)
async def test_a_tool_gives_code_its_data_by_fields(engine_name: str) -> None:
    code = """
w = await weigh(thing="pen")
v = await weigh(thing="words")
print(w.data["grams"][1], w.success, w.is_error, w.status, v.text, v.data, v.child_id, f"<{v.text}> {w.data['thing']!r}")
"""
    assert (
        await Programs(code, engine=engine_name).run()
        == "2 True False completed heavy None None <heavy> 'pen'"
    )


@pytest.mark.parametrize("engine_name", ENGINES)
async def test_programs_that_take_results_for_plain_text_go_on_working(engine_name: str) -> None:
    code = """
import json, re
w = await weigh(thing="pen")
r = await helper(prompt="say something")
v = await weigh(thing="words")
print(json.loads(w)["thing"], len(v), v[:3], v.upper(), "eav" in v, v + "!", "-".join([v, v]), re.findall("e.", v), v == "heavy")
print("<report " in r, "of a stranger" in r, isinstance(r, str), str(v), {v: 1}["heavy"])
v
"""
    assert bare(await Programs(code, engine=engine_name).run()) == (
        "pen 5 hea HEAVY True heavy! heavy-heavy ['ea'] True\nTrue True True heavy 1\nvalue: 'heavy'"
    )


@pytest.mark.parametrize("engine_name", ENGINES)
async def test_a_call_that_fails_is_an_exception_with_the_same_fields(engine_name: str) -> None:
    code = """
import asyncio
try:
    await weigh(thing="nothing")
except RuntimeError as error:
    print(error.success, error.is_error, error.text, error.error, error.data)
asked = [helper(prompt="fail"), helper(prompt="say something"), weigh(thing="nothing")]
ends = await asyncio.gather(*asked, return_exceptions=True)
print([end.success for end in ends], [end.status for end in ends], [end.child_id is None for end in ends])
"""
    assert bare(await Programs(code, engine=engine_name).run()) == (
        "False True there is nothing to weigh there is nothing to weigh None\n"
        "[False, True, False] ['error', 'completed', 'error'] [False, False, True]"
    )


@pytest.mark.parametrize("engine_name", ENGINES)
async def test_words_of_a_child_keep_a_frame_however_code_prints_them(engine_name: str) -> None:
    """As it came it has its own; taken out of that, the whole output has one, in later snippets too."""
    keep = "r = await helper(prompt='say something')\nkept = r.text\nprint(r.status)"
    programs = Programs("r = await helper(prompt='say something')\nr.status", "print(r)", engine=engine_name)
    said = await programs.run()
    assert said.startswith("<report ")
    assert "output of code" not in said
    programs = Programs(keep, "kept.upper()", engine=engine_name)
    said = await programs.run()
    assert said.startswith("[output of code ")
    assert said.splitlines()[1] == "value: 'THE WORDS OF A STRANGER'"
    assert said.endswith(" ends]")
    async with programs.app(programs.store) as retinue:
        assert (await retinue.replay(programs.run_id)).diff == ""


TAKEN = [
    'print(str(r).split("\\n")[1])',
    'r.split("\\n")[1]',
    'print(r.upper()[r.upper().index("THE WORDS"):])',
    'kept = str(r)[str(r).index("the words"):]\n1',
    "print(kept)",
    'print(" ".join(reversed(kept)))',
    'raise ValueError(r.split("\\n")[1])',
    'import json\nprint(json.dumps(r.split("\\n")[1:2]))',
    'print(w)\nprint(p.split("\\n")[1])',
]
"""Ways to take a child's words out of a result, none of them by a field."""


@pytest.mark.parametrize("engine_name", ENGINES)
async def test_words_of_others_have_a_frame_however_code_takes_them_out_of_a_result(engine_name: str) -> None:
    begin = "r = await helper(prompt='say something')\nw = await weigh(thing='pen')\np = await page()"
    programs = Programs(begin, *TAKEN, "print(len(r), r.success, r.status, 1.5e3)", "r", engine=engine_name)
    await programs.run()
    said = [
        each.text
        for each in await programs.log()
        if isinstance(each, ToolReturned) and "/" not in each.call_id
    ]
    framed = [text.startswith("[output of code ") for text in said]
    expected = [False, *("\n1" not in code for code in TAKEN), False, False]
    assert framed == expected
    assert said[-2].endswith("True completed 1500.0")
    assert "<report " in said[-1]


@pytest.mark.parametrize("engine_name", ENGINES)
async def test_after_a_resume_words_of_others_still_have_a_frame(engine_name: str) -> None:
    programs = Programs("r = await helper(prompt='say something')", 'r.split("\\n")[1]', engine=engine_name)
    whole = await programs.run()
    log = await programs.log()
    place = next(n for n, e in enumerate(log) if isinstance(e, ToolReturned) and "/" not in e.call_id)
    cut = MemoryStore()
    await cut.append(log[: place + 1])
    async with programs.app(cut) as retinue:
        await retinue.resume(programs.run_id, take_over=True)
        again = await retinue.wait(programs.run_id)
    assert bare(again.text) == bare(whole)


@pytest.mark.parametrize("engine_name", ENGINES)
async def test_a_resumed_program_gets_the_same_objects_from_the_log(engine_name: str) -> None:
    code = """
r = await helper(prompt="say something")
c = await counter(prompt="count")
w = await weigh(thing="pen")
print(r.text, r.status, r.child_id, r.metrics, c.data, w.data, w.success)
"""
    programs = Programs(code, "print(r.text, c.data, w.data, r.metrics)", engine=engine_name)
    whole = await programs.run()
    log = await programs.log()
    inner = [e for e in log if isinstance(e, ToolReturned) and "/" in e.call_id]
    assert [e.fields.text if e.fields else None for e in inner] == [
        "the words of a stranger",
        '{"n": 7}',
        None,
    ]
    places = [n for n, e in enumerate(log) if isinstance(e, ToolReturned | ToolCalled) and not e.depth]
    for place in places[2::2]:
        cut = MemoryStore()
        await cut.append(log[: place + 1])
        async with programs.app(cut) as retinue:
            await retinue.resume(programs.run_id, take_over=True)
            again = await retinue.wait(programs.run_id)
        first, _, _ = again.text.partition(", 'metrics'")
        assert unmarked(first) == unmarked(whole), place


def unmarked(text: str) -> list[str]:
    """Without the frame's marks, which are of the call, and without how long a child took that ran again."""
    return [line.partition("{'duration_ms")[0] for line in text.splitlines()[1:-1]]


@pytest.mark.asyncio(loop_scope="module")
async def test_fields_outlive_a_dump(engine: Engine) -> None:
    async def look() -> CallResult:
        return CallResult(text="framed", fields={"success": True, "text": "bare"}, outside=True)

    sandbox = engine.session(SandboxLimits())
    await sandbox.run("r = await look()\nr.text", functions={"look": look})
    state = await sandbox.dump()
    await sandbox.close()
    fresh = engine.session(SandboxLimits())
    await fresh.load(state)
    outcome = await fresh.run("(r, r.text, r.success)", functions={})
    assert outcome.value == "('framed', 'bare', True)"
    assert outcome.outside
    await fresh.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_other_things_with_such_attributes_have_their_own(engine: Engine) -> None:
    code = """
import re
class Thing:
    def __init__(self, text):
        self.text = text
    def error(self, more):
        return self.text + more
thing = Thing("a")
thing.text += "b"
try:
    re.compile("(")
except re.error:
    print("bad pattern")
print(thing.text, thing.error("c"), (thing if True else None).text, [Thing(x).text for x in "xy"])
"plain".status
"""
    sandbox = engine.session(SandboxLimits())
    outcome = await sandbox.run(code, functions={})
    await sandbox.close()
    assert outcome.stdout == "bad pattern\nab abc ab ['x', 'y']\n"
    assert outcome.error == "AttributeError: 'str' object has no attribute 'status'"
    assert '    "plain".status' in outcome.trace
    assert "__field" not in outcome.trace
    assert not outcome.outside


def test_only_reading_a_field_changes_a_program_and_its_lines_stay_where_they_are() -> None:
    assert with_fields("x = 1\nx.upper()\nx.text = 2\nx.error('a')") is None
    assert with_fields("(é or\n b).text.strip() + a.data.text") == (
        "__field_text__((é or\n b)).strip() + __field_text__(__field_data__(a))"
    )
    rewritten = with_fields("print(f'{a.text}'\n  f'{b}',\n  c\n  .status)\nd")
    assert rewritten is not None
    assert rewritten.splitlines()[-1] == "d"
    assert len(rewritten.splitlines()) == 5
