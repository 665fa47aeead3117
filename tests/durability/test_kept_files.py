"""Files that notices and reports name in a workspace: there again after kill -9, in a fork too, and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from counting import assert_linear
from pg import server
from retinue.app import Retinue
from retinue.attachments import Attachment, attach
from retinue.engine.keep import KeptFiles, content, export_kept
from retinue.engine.scrub import scrubber
from retinue.errors import StoreError
from retinue.events import Event, ToolReturned
from retinue.store.base import KeptFile
from retinue.store.connect import connect
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.tools.base import ToolContext, ToolResult, tool
from retinue.tools.files import file_tools
from retinue.types import ToolMessage
from retinue.workspace import HOME
from trees import Cast, Stage, agent, results, told, turn

LONG = "\n".join(f"finding {n}: the value is {n * 7919}" for n in range(600))
TESTS = Path(__file__).parent


@tool(effect="read")
async def big(n: int = 0) -> str:
    """More than fits.

    Args:
        n: which
    """
    return "\n".join(f"row {n}-{line}" for line in range(20_000))


@tool(effect="network")
async def page(ctx: ToolContext) -> ToolResult:
    """Save a page."""
    path = ctx.files.save("page.md", ("a saved page\n" * 5000).encode(), f"{HOME}/web")
    return ToolResult(text=f"saved as {path}", files=(path,))


def boss(request: Any) -> Any:
    """Gets a long report, a long result and a page, writes a file; then it is killed."""
    done = [message.name for message in results(request)]
    if not done:
        note = {"path": f"{HOME}/notes/own.md", "content": "what I noted"}
        return [("child", {"prompt": "x"}), ("big", {}), ("page", {}), ("write", note)]
    if os.environ.get("RETINUE_TEST_KILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    if done.count("read") == 0:
        named = [f"{HOME}/big.txt", f"{HOME}/web/page.md", f"{HOME}/notes/own.md"]
        reports = [w.strip("]") for m in results(request) for w in m.text.split() if "/report-" in w]
        return [("read", {"path": path}) for path in [*dict.fromkeys(reports), *named]]
    return "done"


def stage(store: Any, root_id: str | None = None, **dotted: Any) -> Stage:
    return Stage(
        {"root": boss, "child": lambda request: LONG},
        agents=[agent("child", tools=())],
        tools=[big, page, *(each for each in file_tools() if each.name in ("read", "write"))],
        store=store,
        root_id=root_id,
        yes=True,
        **dotted,
    )


async def begin(url: str) -> None:
    store = connect(url)
    await store.open()
    here = stage(store, "r0kept")
    await here.run()


def kill_it(url: str) -> None:
    """A process that is killed between the first step's results and the second step."""
    code = f"import sys, asyncio; sys.path[:0] = {[str(TESTS), str(TESTS.parent)]!r}\n"
    code += f"import test_kept_files as t; asyncio.run(t.begin({url!r}))"
    environ = {**os.environ, "RETINUE_TEST_KILL": "1"}
    ended = subprocess.run([sys.executable, "-c", code], env=environ, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL


async def test_files_that_the_log_names_are_there_again_after_a_kill(durable_url: str) -> None:
    await asyncio.to_thread(kill_it, durable_url)
    store = connect(durable_url)
    await store.open()
    try:
        again = stage(store, "r0kept")
        report = await (await again.resume())
        assert report.text == "done"
        shown = {m.text.split("\n")[0]: m for m in results(again.model.of("root")[-1]) if m.name == "read"}
        texts = [m.text for m in results(again.model.of("root")[-1]) if m.name == "read"]
        assert len(texts) == 4, shown
        assert not any(m.is_error for m in shown.values()), texts
        for part in ("finding 1: the value is 7919", "row 0-7", "a saved page", "what I noted"):
            assert any(part in text for text in texts), part
        assert {file.run_id for file in await store.kept("r0kept")} == {"r0kept"}
        await store.delete("r0kept")
        assert await store.kept("r0kept") == []
    finally:
        await store.close()


class NoRoom(MemoryStore):
    """A database that takes no more files."""

    async def keep(self, file: KeptFile) -> None:
        raise StoreError("no room")


async def test_a_run_goes_on_without_a_file_that_could_not_be_kept_and_that_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = stage(NoRoom())
    assert (await here.run()).text == "done"
    assert f"{HOME}/notes/own.md of {here.root_id} was not kept: no room" in caplog.text


async def test_a_conversation_that_goes_on_has_its_files(tmp_path: Path) -> None:
    note = {"path": f"{HOME}/own.md", "content": "for later"}
    asked = ScriptedModel([call("write", **note), "noted", call("read", path=note["path"]), "read"])
    options: Any = {"model": asked, "db": MemoryStore(), "cwd": tmp_path, "yes": True, "environ": {}}
    async with Retinue(**options) as retinue:
        first = await retinue.start(agent("root", tools=("read", "write")), "note it")
        await retinue.wait(first)
        await retinue.resume(first, message="and now?")
        await retinue.wait(first)
        found = [e for e in await retinue.store.events(first) if isinstance(e, ToolReturned)]
    assert [e.is_error for e in found] == [False, False]
    assert "for later" in found[-1].text


async def test_a_fork_has_the_files_of_its_beginning_and_none_of_later(tmp_path: Path) -> None:
    store = MemoryStore()
    one, two = ({"path": f"{HOME}/{name}.md", "content": name} for name in ("one", "two"))
    asked = ScriptedModel([call("write", **one), call("write", **two), "written"])
    options: Any = {"db": store, "cwd": tmp_path, "yes": True, "environ": {}}
    async with Retinue(model=asked, **options) as retinue:
        first = await retinue.start(agent("root", tools=("read", "write")), "write")
        await retinue.wait(first)
        at = next(e.pos for e in await store.events(first) if isinstance(e, ToolReturned))
    reads = ScriptedModel([[call("read", path=one["path"]), call("read", path=two["path"])], "read"])
    async with Retinue(model=reads, **options) as retinue:
        fork = await retinue.fork(first, at=at)
        await retinue.wait(fork)
        found = [e for e in await store.events(fork) if isinstance(e, ToolReturned)][-2:]
    assert [e.is_error for e in found] == [False, True]
    assert {file.path for file in await store.kept(first)} == {one["path"], two["path"]}


async def test_a_fork_has_a_file_as_it_was_then_and_so_has_a_fork_of_that(tmp_path: Path) -> None:
    store = MemoryStore()
    path = f"{HOME}/notes.md"

    def play(request: Any) -> Any:
        last = told(request)[-1]
        if last.startswith("read"):
            return f"read {results(request)[-1].text}" if awaits(request) else [("read", {"path": path})]
        return "written" if awaits(request) else [("write", {"path": path, "content": f"version {last}"})]

    def awaits(request: Any) -> bool:
        """Whether the last thing in the conversation is a result."""
        return isinstance(request.messages[-1], ToolMessage)

    options: Any = {"db": store, "cwd": tmp_path, "yes": True, "environ": {}}
    async with Retinue(model=Cast({"root": play}), **options) as retinue:
        root = await retinue.start(agent("root", tools=("read", "write")), "0")
        await retinue.wait(root)
        ends = [len(await store.events(root))]
        for n in range(1, 7):
            await retinue.wait(await retinue.resume(root, message=str(n)))
            ends.append(len(await store.events(root)))
        assert len([file for file in await store.kept(root) if file.path == path]) == 5
        for n in range(2, 7):
            fork = await retinue.fork(root, at=ends[n], message="read")
            assert f"version {n}" in (await retinue.wait(fork)).text
            again = await retinue.fork(fork, at=ends[2], message="read again")
            assert "version 2" in (await retinue.wait(again)).text
        late = await retinue.fork(root, at=ends[0], message="read")
        assert "there is no file" in (await retinue.wait(late)).text, "older than all that is kept"


async def test_what_is_kept_is_bounded_and_the_oldest_of_ended_runs_go_first() -> None:
    noise = random.Random(7)

    @tool(effect="read")
    async def noisy(ctx: ToolContext) -> ToolResult:
        """Noise does not pack."""
        path = ctx.files.save("noise.bin", noise.randbytes(600_000))
        return ToolResult(text=path, files=(path,))

    def part(request: Any) -> Any:
        return [("noisy", {})] if turn(request) == 0 else "done"

    def root(request: Any) -> Any:
        if turn(request) < 3:
            return [("child", {"prompt": str(turn(request))})]
        return [("noisy", {})] if turn(request) == 3 else "done"

    here = Stage(
        {"root": root, "child": part},
        agents=[agent("child", tools=("noisy",))],
        tools=[noisy],
        workspace__kept_mb=1,
    )
    await here.run()
    kept = await here.store.kept(here.root_id)
    assert [file.run_id for file in kept] == [here.root_id], "the newest, and one megabyte"
    off = Stage({"root": part}, tools=[noisy], workspace__kept_mb=0)
    await off.run()
    assert await off.store.kept(off.root_id) == []


@tool(effect="write")
async def put(ctx: ToolContext, text: str = "") -> ToolResult:
    """Put a text into a file, or name the file once more as it is."""
    if text:
        ctx.files.write(f"{HOME}/a.txt", text.encode())
    return ToolResult(text="ok", files=(f"{HOME}/a.txt",))


async def test_a_file_that_is_named_again_unchanged_pushes_no_version_out_whoever_takes_the_run_up() -> None:
    store = MemoryStore()
    begins: list[Any] = [[("put", {"text": "one"})], [("put", {"text": "two"})], "done"]
    goes_on: list[Any] = [[("put", {})], "done"]
    here = Stage({"root": begins}, tools=[put], store=store, yes=True)
    await here.run(agent("root", tools=("put",)))
    for _ in range(5):
        again = Stage(
            {"root": begins + goes_on * 5}, tools=[put], store=store, yes=True, root_id=here.root_id
        )
        await (await again.resume(message="go on"))
    assert [content(file) for file in await store.kept(here.root_id)] == [b"one", b"two"]
    changes = [*begins, *goes_on * 5, [("put", {"text": "one"})], "done"]
    last = Stage({"root": changes}, tools=[put], store=store, yes=True, root_id=here.root_id)
    await (await last.resume(message="go on"))
    assert [content(file) for file in await store.kept(here.root_id)] == [b"one", b"two", b"one"]


class Compared(str):
    """A text whose comparisons are counted as calls."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


@pytest.mark.parametrize("room", [True, False], ids=["room for all", "no room"])
def test_keeping_one_more_file_is_as_much_work_as_there_are_files(room: bool) -> None:
    tree = Stage({"root": ["done"]}, workspace__kept_mb=1).workflow.tree

    def keep(number: int) -> None:
        kept, size = KeptFiles(tree), 10 if room else 1_000_000 // (number * 2)
        sizes: dict[tuple[str, str, int], int] = {
            ("r", Compared(f"{HOME}/f{n}"), v): size for v in range(2) for n in range(number)
        }
        making = kept._made_room(sizes, ("r", Compared(f"{HOME}/new"), 9), 500_000)
        assert asyncio.run(making)

    assert_linear(keep, 640)


async def test_kept_files_are_exported_by_run_and_path_with_secrets_blanked_out(tmp_path: Path) -> None:
    store = MemoryStore()
    note = {"path": f"{HOME}/notes/own.md", "content": "the key is sk-ant-REDACTED"}
    here = Stage({"root": [[("write", note)], "done"]}, tools=file_tools(), store=store, yes=True)
    await here.run()
    assert export_kept(await store.kept(here.root_id), tmp_path, scrubber()) == 1
    text = (tmp_path / here.root_id / "notes" / "own.md").read_text()
    assert text.startswith("the key is ")
    assert "abcdefghijklmnopqrst" not in text


@pytest.mark.parametrize(
    ("run_id", "path"), [("..", "a"), ("a/b", "c"), ("/etc", "a"), ("r", "../../a"), ("r", "x/../../../a")]
)
def test_no_kept_file_is_exported_to_a_place_outside_of_its_run(
    tmp_path: Path, run_id: str, path: str
) -> None:
    made = KeptFile(
        root_id="r", run_id=run_id, path=f"{HOME}/{path}", seq=1, at=0, data=zlib.compress(b"x", 1)
    )
    assert export_kept([made], tmp_path / "out", scrubber()) == 0
    assert list(tmp_path.rglob("*")) == []


def sheet_tools(model: ScriptedModel) -> list[str]:
    return [tool.name for tool in model.requests[-1].tools if tool.name.startswith("sheet")]


async def salaries(folder: Path) -> list[Attachment]:
    path = folder / "salaries.csv"
    path.write_text("name,salary\n" + "\n".join(f"person{n},{n * 100}" for n in range(300)))
    return [await attach(path)]


async def test_attached_sheets_are_there_in_the_conversation_and_in_a_fork_and_go_with_each(
    durable_url: str, tmp_path: Path
) -> None:
    model = ScriptedModel(lambda request: "ok")
    async with Retinue(model=model, db=durable_url, project=False, environ={}) as retinue:
        store = retinue.store
        first = await retinue.start("general", "what is in it?", attachments=await salaries(tmp_path))
        await retinue.wait(first)
        assert sheet_tools(model)
        await retinue.wait(await retinue.resume(first, message="and now?"))
        assert sheet_tools(model)
        fork = await retinue.fork(first, message="and now?")
        await retinue.wait(fork)
        assert sheet_tools(model)
        assert export_kept(await store.kept(first), tmp_path / "out", scrubber()) == 0
        await store.delete(first)
        assert await store.kept(first) == []
        await retinue.wait(await retinue.resume(fork, message="still?"))
        assert sheet_tools(model), "the fork has its own"
        await store.delete(fork)
    assert not await asyncio.to_thread(holds, durable_url, "person7")


def holds(url: str, word: str) -> bool:
    """Whether any table has this word, as text or among bytes."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite://"))) as connection:
            dump = "\n".join(connection.iterdump())
    else:
        base = url.rpartition("/")[2]
        tables = ("events", "runs", "letters", "cache", "retinue_files")
        dump = "\n".join(server().sql(f"SELECT * FROM {table}", base) for table in tables)
    return word in dump or word.encode().hex() in dump.lower()


class Full(MemoryStore):
    """Takes no event."""

    full = True

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        if self.full:
            raise StoreError("the disk is full")
        return super().append(events)


async def test_sheets_of_a_run_that_could_not_begin_are_not_kept(tmp_path: Path) -> None:
    store = Full()
    async with Retinue(model=ScriptedModel(["ok"]), db=store, project=False, environ={}) as retinue:
        with pytest.raises(StoreError, match="the disk is full"):
            await retinue.start("general", "what?", run_id="r0full", attachments=await salaries(tmp_path))
        assert await store.kept("r0full") == []


async def test_files_of_a_fork_that_could_not_begin_are_not_kept(tmp_path: Path) -> None:
    store = Full()
    store.full = False
    wrote = call("write", path=f"{HOME}/one.md", content="one")
    async with Retinue(
        model=ScriptedModel([wrote, "written"]), db=store, cwd=tmp_path, yes=True, environ={}
    ) as retinue:
        sheets = await salaries(tmp_path)
        root_id = (await retinue.run("general", "write", attachments=sheets)).run_id
        before = await store.size()
        assert len({file.run_id for file in await store.kept(root_id)}) == 2, "the sheets, and its own file"
        store.full = True
        with pytest.raises(StoreError, match="the disk is full"):
            await retinue.fork(root_id, message="more")
        assert await store.size() == before


async def test_a_file_in_the_place_of_itself_takes_the_room_of_one() -> None:
    here = stage(MemoryStore())
    kept, run = (
        KeptFiles(here.workflow.tree),
        cast("Any", SimpleNamespace(id="r", state=SimpleNamespace(seq=3))),
    )
    kept._most = 150
    contents = [random.Random(n).randbytes(100) for n in (1, 2)]
    for data in contents:
        await kept._keep_one(run, f"{HOME}/a", data)
    assert [content(file) for file in await here.store.kept(here.root_id)] == contents[1:]


async def test_a_file_that_changed_to_bytes_of_the_same_checksum_is_kept_again() -> None:
    assert zlib.crc32(b"plumless") == zlib.crc32(b"buckeroo")
    store = MemoryStore()
    steps: list[Any] = [[("put", {"text": "plumless"})], [("put", {"text": "buckeroo"})], "done"]
    stage = Stage({"root": steps}, tools=[put], store=store, yes=True)
    await stage.run(agent("root", tools=("put",)))
    assert [content(file) for file in await store.kept(stage.root_id)] == [b"plumless", b"buckeroo"]
