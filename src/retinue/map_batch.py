"""One agent over many inputs, so many at once: what `Retinue.map` returns.

Knows no store and no model: it is handed what runs one input under an id of its own. That id follows from the
name of the batch and from the input, so that the same batch, started a second time, finds what was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from retinue.errors import ConfigError, Gone, StoreError
from retinue.run_ids import batch_run_id
from retinue.types import Report, Usage

Input = TypeVar("Input")
Prompt = str | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class MapWork:
    """The report of one input, and what was used for it now: nothing of one that is `from_before`."""

    report: Report
    usage: Usage
    from_before: bool = False


Work = Callable[[str, str, Prompt], Awaitable[MapWork]]
"""Runs a prompt under a run id, with a label, to its report: once, however often it is called."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MapItem(Generic[Input]):
    """One input, and what became of it. `error` is why there is no report: it could not be started.

    `done` and `failed` are the counts of the whole batch when this one came; `index` is its place among the
    inputs, from 0. `from_before`: an earlier start of the batch had done it, and it cost nothing now.
    """

    index: int
    key: str
    input: Input
    run_id: str
    report: Report | None
    error: Exception | None
    done: int
    failed: int
    from_before: bool = False

    @property
    def ok(self) -> bool:
        """Whether it has a report that lacks nothing."""
        return self.report is not None and self.report.outcome == "completed"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece(Generic[Input]):
    """An input that is to be worked on."""

    index: int
    key: str
    input: Input
    prompt: Prompt
    run_id: str


class MapBatch(Generic[Input]):
    """Iterate over it: it works while somebody does. Leaving the loop early cancels what runs.

    `done`, `failed` and `usage` say how far it is; `usage` is without what was used by an earlier start, and
    `from_before` is how many that had done. Inputs are read as they are needed. `scope` says what keeps
    batches of one name apart beside it: the agent, the folder, what each run is given.
    """

    def __init__(
        self,
        work: Work,
        inputs: Iterable[Input] | AsyncIterable[Input],
        *,
        name: str,
        scope: Callable[[], Awaitable[str]],
        key: Callable[[Input], str] | None,
        prompt: Callable[[Input], Prompt] | None,
        concurrency: int,
        ordered: bool,
    ) -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency is {concurrency}: at least one input is worked on at a time")
        self.name, self.ordered = name, ordered
        self._scope_of, self._scope = scope, ""
        self.done = self.failed = self.from_before = 0
        self.usage = Usage()
        self._work, self._inputs = work, inputs
        self._key, self._prompt, self._concurrency = key, prompt, concurrency
        self._seen: Counter[str] = Counter()
        self._begun = False

    def __aiter__(self) -> AsyncIterator[MapItem[Input]]:
        return self._begin()

    def _begin(self) -> AsyncGenerator[MapItem[Input]]:
        if self._begun:
            raise ConfigError(
                "this batch was iterated over before", fix="call map again: what is done is not done again"
            )
        self._begun = True
        return self._items()

    async def reports(self) -> list[Report]:
        """All of them, in the order of the inputs. What could not be started raises why."""
        found: dict[int, Report] = {}
        async with contextlib.aclosing(self._begin()) as items:
            async for item in items:
                if item.report is None:
                    raise item.error or RuntimeError(f"{item.key} has no report")
                found[item.index] = item.report
        return [found[index] for index in sorted(found)]

    async def _items(self) -> AsyncGenerator[MapItem[Input]]:
        working: dict[asyncio.Task[MapWork], _Piece[Input]] = {}
        ended: dict[int, MapItem[Input]] = {}
        following = 0
        inputs = _Inputs(self._pieces())
        coming: asyncio.Future[_Piece[Input]] | None = None
        try:
            while working or not inputs.reading.done():
                # What waits for its turn counts too, or one slow input would gather all that come after it.
                if coming is None and len(working) + len(ended) < self._concurrency:
                    coming = inputs.next()
                # What is done is not held back by an input that is slow to come.
                more = () if inputs.reading.done() else (inputs.reading, *((coming,) if coming else ()))
                await asyncio.wait({*working, *more}, return_when=asyncio.FIRST_COMPLETED)
                for task in [each for each in working if each.done()]:
                    item = self._item(working.pop(task), task)
                    if not self.ordered:
                        yield item
                        continue
                    ended[item.index] = item
                while following in ended:
                    yield replace(ended.pop(following), done=self.done, failed=self.failed)
                    following += 1
                if coming is not None and coming.done():
                    piece, coming = coming.result(), None
                    task = asyncio.ensure_future(self._work(piece.run_id, piece.key, piece.prompt))
                    working[task] = piece
                if inputs.reading.done():
                    inputs.reading.result()  # raises what kept it from reading on
        finally:
            for task in (*working, inputs.reading):
                task.cancel()
            await asyncio.wait((*working, inputs.reading))

    def _item(self, piece: _Piece[Input], task: asyncio.Task[MapWork]) -> MapItem[Input]:
        error = task.exception()
        worked = None if error is not None else task.result()
        report = None if worked is None else worked.report
        # Whoever deletes a run means that one. A store that fails would fail every other input too.
        lost = isinstance(error, StoreError) and not isinstance(error, Gone)
        if error is not None and (lost or not isinstance(error, Exception)):
            raise error
        self.done += 1
        if report is None or report.outcome != "completed":
            self.failed += 1
        if worked is not None:
            self.usage += worked.usage
            self.from_before += worked.from_before
        elif not isinstance(error, ConfigError):  # that was refused before anything was asked
            self.usage += Usage(cost=None)  # what it had used by then, nobody knows
        return MapItem(
            index=piece.index,
            key=piece.key,
            input=piece.input,
            run_id=piece.run_id if report is None else report.run_id,
            report=report,
            error=error,
            done=self.done,
            failed=self.failed,
            from_before=worked is not None and worked.from_before,
        )

    async def _pieces(self) -> AsyncGenerator[_Piece[Input]]:
        index, self._scope = 0, await self._scope_of()
        async with contextlib.aclosing(_each(self._inputs)) as inputs:
            async for given in inputs:
                yield self._piece(index, given)
                index += 1

    def _piece(self, index: int, given: Input) -> _Piece[Input]:
        prompt = self._prompt(given) if self._prompt is not None else cast("Prompt", given)
        if not isinstance(cast("Any", prompt), str | Mapping):
            raise TypeError(
                f"input {index} is {type(prompt).__name__}, not a text and not a mapping of an agent's "
                "input_schema: give prompt=, a function that makes one of it"
            )
        said = json.dumps(prompt, sort_keys=True, ensure_ascii=False, default=str)
        key = said_key(said) if self._key is None else str(self._key(given))
        self._seen[key] += 1
        if self._key is not None and self._seen[key] > 1:
            raise ConfigError(f"two inputs have the key {key!r}", fix="each input needs a key of its own")
        run_id = batch_run_id(self._scope, self.name, key, said, self._seen[key])
        return _Piece(index=index, key=key, input=given, prompt=prompt, run_id=run_id)


def said_key(said: str) -> str:
    """A key for an input that has none: its beginning, for people, and its digest."""
    words = " ".join(said.strip('{}"').split())
    return f"{words[:40]} {hashlib.sha256(said.encode()).hexdigest()[:8]}"


class _Inputs(Generic[Input]):
    """Reads inputs, each when it is wanted, and all in one task: what gives them may hold things open."""

    def __init__(self, pieces: AsyncGenerator[_Piece[Input]]) -> None:
        self._pieces = pieces
        self._wanted: asyncio.Queue[asyncio.Future[_Piece[Input]]] = asyncio.Queue()
        self.reading = asyncio.create_task(self._read())

    def next(self) -> asyncio.Future[_Piece[Input]]:
        """Want one more. Where there is none, the reading ends."""
        coming: asyncio.Future[_Piece[Input]] = asyncio.get_running_loop().create_future()
        self._wanted.put_nowait(coming)
        return coming

    async def _read(self) -> None:
        async with contextlib.aclosing(self._pieces) as pieces:
            while True:
                coming = await self._wanted.get()
                piece = await anext(pieces, None)
                if piece is None:
                    return
                coming.set_result(piece)


async def _each(inputs: Iterable[Input] | AsyncIterable[Input]) -> AsyncGenerator[Input]:
    if isinstance(inputs, AsyncIterable):
        async for given in inputs:
            yield given
        return
    for given in inputs:
        yield given
