"""The inside of the cpython engine: a program that runs snippets and can reach nothing but its two pipes.

Started by `cpython` as a script, in an isolated interpreter, and once per session. It loads the part of the
standard library that only computes, waits for the limits, locks itself (`seal`) and only then reads code.
Messages are JSON behind a length of four bytes: on descriptor 0 from the host, on descriptor 1 to it.

Nothing here is trusted once code runs: the host checks all that comes out, and the locks are the kernel's.
"""

from __future__ import annotations

import os
import sys

# These would only be loaded for parts of asyncio and hashlib that cannot work in here, at a cost of 20 ms.
sys.modules["ssl"] = sys.modules["_ssl"] = sys.modules["_hashlib"] = None  # pyright: ignore[reportArgumentType]

import ast  # noqa: E402
import asyncio  # noqa: E402
import asyncio.base_events  # noqa: E402
import builtins  # noqa: E402
import inspect  # noqa: E402
import json  # noqa: E402
import linecache  # noqa: E402
import traceback  # noqa: E402
import warnings  # noqa: E402
import weakref  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

LIBRARY = """
    abc array ast asyncio base64 binascii bisect calendar cmath codecs collections collections.abc colorsys
    contextlib contextvars copy csv dataclasses datetime decimal difflib enum fractions functools gc graphlib
    hashlib heapq hmac html html.entities html.parser inspect io itertools json keyword linecache locale
    logging math numbers operator os os.path pathlib pickle pprint queue random re reprlib secrets select
    shlex statistics string stringprep struct sys textwrap threading time timeit tokenize tomllib traceback
    types typing unicodedata urllib.parse uuid warnings weakref xml.etree.ElementTree zlib
    _strptime encodings.ascii encodings.cp1252 encodings.idna encodings.latin_1 encodings.utf_16
"""

_TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_MOST_MESSAGE = 4000
_MOST_NAME = 256
_MOST_UNAWAITED = 100
_SPINS = 1000
"""Turns of the loop in which code neither waited nor ended: then its time goes on, as if it had waited."""


def load_library() -> None:
    import importlib

    for name in LIBRARY.split():
        importlib.import_module(name)
    # Some modules finish loading with their first use.
    sys.modules["datetime"].datetime.strptime("2026-01-01", "%Y-%m-%d")
    "é".encode("idna")
    ast.literal_eval("{'a': 1}")


def load_beside(name: str) -> Any:
    """A file beside this one: there is no package in an isolated interpreter."""
    import importlib.util

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RefusingFinder:
    """The only finder that is left: says what can be imported instead of looking for files."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        names = sorted(each for each in LIBRARY.split() if "." not in each and not each.startswith("_"))
        raise ModuleNotFoundError(
            f"No module named {name!r} in the sandbox. There are: {', '.join(names)}", name=name
        )


def send(message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(1, data) :]


def _read(count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = os.read(0, min(count, 1 << 20))
        if not part:
            os._exit(0)  # the host is gone
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive() -> dict[str, Any]:
    return json.loads(_read(int.from_bytes(_read(4), "big")))


class TextResult(str):
    """What a function gives back: a text with fields. `read` says whether any of those was read that others
    worded."""

    fields: dict[str, Any]
    outside: tuple[str, ...] = ()
    read = False

    def __getattr__(self, name: str) -> Any:
        return field(self, name)


class Failure(RuntimeError):
    """The same for a call that failed."""

    fields: dict[str, Any]
    outside: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return field(self, name)


Failure.__name__ = Failure.__qualname__ = "RuntimeError"
Failure.__module__ = "builtins"


def field(of: TextResult | Failure, name: str) -> Any:
    fields = of.__dict__.get("fields", {})
    if name not in fields:
        raise AttributeError(
            f"{'str' if isinstance(of, str) else 'RuntimeError'!r} object has no attribute {name!r}"
        )
    if name in of.outside:
        TextResult.read = True
    return fields[name]


def with_fields(of: TextResult | Failure, message: dict[str, Any]) -> Any:
    of.fields = {"text": str(of), **message["fields"]}
    of.outside = tuple(message["outside"])
    return of


class Host:
    """Where the event loop waits: for the host, which says what comes next, an answer or a timer.

    It is told one thing at a time, and only when all that followed from the last is done: what code makes of
    answers must not depend on how fast they come.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._spins = 0

    def select(self, timeout: float | None) -> list[dict[str, Any]]:
        if timeout is not None and timeout <= 0:
            self._spins += 1
            if self._spins <= _SPINS or self._loop.stops:
                return []
            if not self._loop.calls:
                self._loop.clock.sleep(0.001)
                return []
        self._spins = 0
        flush()
        timer = self._loop.timer
        send({"op": "wait", "timer": None if timer is None else max(0.0, timer - self._loop.clock.passed)})
        return [receive()]

    def close(self) -> None: ...


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it lies in memory: code goes through such sets."""

    made = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        NumberedTask.made += 1
        self._number = NumberedTask.made
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


def numbered(loop: asyncio.AbstractEventLoop, coro: Any, **given: Any) -> NumberedTask:
    return NumberedTask(coro, loop=loop, **given)


def in_order(real: Any) -> Any:
    """`as_completed`, which begins with what it is given in the order of a set."""

    def as_completed(fs: Any, *, timeout: float | None = None) -> Any:
        return real([asyncio.ensure_future(each) for each in fs], timeout=timeout)

    return as_completed


class Loop(asyncio.base_events.BaseEventLoop):
    """asyncio without sockets: everything it waits for is a timer or the host. Its clock is the given one."""

    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        super().__init__()
        self._selector = Host(self)
        self.calls: dict[int, tuple[asyncio.Future[Any], float]] = {}
        """With when each was made."""
        self.made = 0
        self.set_task_factory(numbered)

    def time(self) -> float:
        return self.clock.passed

    @property
    def timer(self) -> float | None:
        """When the next timer is due."""
        return self._scheduled[0].when() if self._scheduled else None

    @property
    def stops(self) -> bool:
        return self._stopping

    def _process_events(self, event_list: list[dict[str, Any]]) -> None:
        for message in event_list:
            timer = self.timer
            if message.get("op") == "tick":
                self.clock.until(0.0 if timer is None else timer)
                continue
            _, made = self.calls.get(message["id"], (None, self.clock.passed))
            came = made + message.get("took", 0.0)
            self.clock.until(came if timer is None else min(came, timer))  # that a timer was due, it is told
            self.settle(message)

    def settle(self, message: dict[str, Any]) -> None:
        """The host's answer to a call."""
        future, _ = self.calls.pop(message["id"], (None, 0.0))
        if future is None or future.done():
            return
        if "fields" in message and "value" in message:
            future.set_result(with_fields(TextResult(message["value"]), message))
        elif "fields" in message:
            future.set_exception(with_fields(Failure(message["message"]), message))
        elif "value" in message:
            future.set_result(message["value"])
        else:
            kind = TypeError if message["kind"] == "TypeError" else RuntimeError
            kind = NameError if message["kind"] == "NameError" else kind
            failure = kind(message["message"])
            if isinstance(failure, NameError):
                failure.name = message["name"]
            future.set_exception(failure)

    def _write_to_self(self) -> None: ...

    async def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        flush()
        number = self.made = self.made + 1
        json.dumps([args, kwargs])  # a TypeError here is the code's own
        future = self.create_future()
        self.calls[number] = (future, self.clock.passed)
        send({"op": "call", "id": number, "name": name, "args": args, "kwargs": kwargs})
        return await future


class Output:
    """What `print` writes to. Handed on in pieces, so that it is not lost when the process is killed."""

    encoding, errors, closed = "utf-8", "replace", False

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0

    def write(self, text: str) -> int:
        self.parts.append(text + "")  # a TypeError here, and not later, if it is no text
        self.size += len(text)
        if self.size > 8192:
            self.flush()
        return len(text)

    def flush(self) -> None:
        text = "".join(self.parts)
        self.parts, self.size = [], 0
        for start in range(0, len(text), 1 << 18):
            send({"op": "print", "text": text[start : start + (1 << 18)]})

    def isatty(self) -> bool:
        return False


output = Output()
flush = output.flush


def function(loop: Loop, name: str) -> Callable[..., Any]:
    async def made(place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        unawaited.pop(place, None)
        return await loop.call(name, args, kwargs)

    def call(*args: Any, **kwargs: Any) -> Any:
        place = Unmade.count = Unmade.count + 1
        coroutine = made(place, args, kwargs)
        if len(unawaited) < _MOST_UNAWAITED:
            unawaited[place] = Unmade(coroutine, {"name": name, "args": args, "kwargs": kwargs})
        return coroutine

    made.__name__ = made.__qualname__ = call.__name__ = call.__qualname__ = name
    return call


class Unmade:
    """A call that was written and did not begin, as long as something may still await it."""

    count = 0

    def __init__(self, coroutine: Any, call: dict[str, Any]) -> None:
        self.alive = weakref.ref(coroutine)
        self.call = call


unawaited: dict[int, Unmade] = {}


def never_made(value: Any) -> list[dict[str, Any]]:
    """The calls that nothing can await any more, or that are all that the last line gave."""
    lost = [place for place, each in unawaited.items() if each.alive() is None or each.alive() is value]
    found: list[dict[str, Any]] = []
    for place in lost:
        call = unawaited.pop(place).call
        try:
            found.append(json.loads(json.dumps(call)))
        except (TypeError, ValueError, RecursionError):
            found.append({"name": call["name"]})
    return found


class Awaited(ast.NodeTransformer):
    """`asyncio.run(main())` at the top level, as models end their programs, means `await main()` here."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if len(node.args) == 1 and not node.keywords and ast.unparse(node.func) == "asyncio.run":
            return ast.copy_location(ast.Await(node.args[0]), node)
        return node


def compiled(code: str, filename: str) -> tuple[Any, Any]:
    """A snippet, and its last line by itself if that is an expression."""
    tree: ast.Module = compile(code, filename, "exec", ast.PyCF_ONLY_AST | _TOP_LEVEL_AWAIT)
    Awaited().visit(tree)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        return compile(tree, filename, "exec", _TOP_LEVEL_AWAIT), None
    tree.body.pop()
    value = compile(ast.Expression(last.value), filename, "eval", _TOP_LEVEL_AWAIT)
    return compile(tree, filename, "exec", _TOP_LEVEL_AWAIT), value


async def execute(body: Any, last: Any, space: dict[str, Any]) -> Any:
    """Run a snippet; the value of its last line, if that is an expression."""
    value = await _evaluate(body, space)
    if last is None:
        return value
    space["_"] = await _evaluate(last, space)
    return space["_"]


async def _evaluate(code: Any, space: dict[str, Any]) -> Any:
    value = eval(code, space)  # noqa: S307  # running code is what this process is for
    return await value if code.co_flags & inspect.CO_COROUTINE else value


def run(loop: Loop, message: dict[str, Any], space: dict[str, Any]) -> dict[str, Any]:
    code, filename, most = message["code"], message["file"], message["output"]
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    for name in message["names"]:
        builtins.__dict__[name] = function(loop, name)
    try:
        body, last = compiled(code, filename)
    except BaseException as error:
        return {**explain(error), "unparsed": True}
    value = None
    try:
        value = loop.run_until_complete(execute(body, last, space))
        text = None if value is None else repr(value)
    except BaseException as error:
        return {**explain(error), "unawaited": never_made(value)}
    if text is not None and len(text) > most:
        text = text[:most] + " …"
    return {"op": "done", "value": text, "unawaited": never_made(value)}


def explain(error: BaseException) -> dict[str, Any]:
    """The error in one line and with its way through the snippets, without the frames of this file."""
    memory = isinstance(error, MemoryError)
    if memory:
        traceback.clear_frames(error.__traceback__)  # to have something to write the message with
    try:
        line = "".join(traceback.format_exception_only(type(error), error)).strip().split("\n")[-1]
        told = traceback.TracebackException(type(error), error, error.__traceback__)
        _only_snippets(told)
        trace = "".join(told.format())
    except BaseException as worse:
        line, trace = f"{type(error).__name__}: (its message raised {type(worse).__name__})", ""
    return {
        "op": "done",
        "error": line[:_MOST_MESSAGE],
        "trace": trace[: 4 * _MOST_MESSAGE],
        "memory": memory,
        "name": _undefined(error),
    }


def _undefined(error: BaseException) -> str:
    """The name that is not there, if that is the error."""
    name = error.name if isinstance(error, NameError) else None
    return name[:_MOST_NAME] if isinstance(name, str) else ""


def _only_snippets(told: traceback.TracebackException, depth: int = 0) -> None:
    """Where the code itself was: not this file, and not the library with its paths on the host."""
    told.stack[:] = [frame for frame in told.stack if frame.filename.startswith("<snippet")][-20:]
    for cause in (told.__cause__, told.__context__):
        if cause is not None and depth < 5:
            _only_snippets(cause, depth + 1)


def warn(message: object, category: type[Warning], *details: object) -> None:
    output.write(f"{category.__name__}: {message}\n")


def scrub() -> None:
    """Names of files and folders of the host that the interpreter itself carries around."""
    for module in list(sys.modules.values()):
        for name in ("__file__", "__cached__", "__path__"):
            if getattr(module, name, None):
                setattr(module, name, [] if name == "__path__" else "")
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            spec.origin = spec.cached = None
            spec.submodule_search_locations = None
    sys.argv, sys.orig_argv, sys.path, sys.executable = [""], [""], [], ""
    sys.prefix = sys.base_prefix = sys.exec_prefix = sys.base_exec_prefix = ""
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [RefusingFinder()]
    sys.path_hooks.clear()


def main() -> None:
    seal = load_beside("seal")
    __import__("resource")  # what `seal` needs later, when there is nothing to load from
    seal.die_with_parent()
    load_library()
    chance = load_beside("chance").install()
    os.environ.clear()
    asyncio.as_completed = asyncio.tasks.as_completed = in_order(asyncio.as_completed)
    loop = Loop(chance)
    asyncio.set_event_loop(loop)
    scrub()
    send({"op": "ready"})
    limits = receive()
    seal.seal(limits["memory"], limits["cpu_seconds"])
    for name in ("ctypes", "_ctypes", "ctypes._endian", "resource"):
        sys.modules.pop(name, None)
    warnings.showwarning = warn
    sys.stdin, sys.stdout, sys.stderr = None, output, output
    sys.__stdin__ = sys.__stdout__ = sys.__stderr__ = None
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    while True:
        message = receive()
        if message.get("op") != "run":  # the answer to a call that the last snippet did not wait for
            loop.settle(message)
            continue
        chance.begin(message["at"], message["seed"])
        done = run(loop, message, space)
        flush()
        send({**done, "outside": TextResult.read})


if __name__ == "__main__":
    main()
