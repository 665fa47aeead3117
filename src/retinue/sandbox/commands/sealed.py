"""A sealed command as its supervisor sees it: the first process of its namespace, and all others in there."""

from __future__ import annotations

import contextlib
import os
import signal

from retinue.sandbox.commands import ending, inside
from retinue.sandbox.commands.guards import CannotSeal, Guards
from retinue.sandbox.commands.leftovers import Leftovers
from retinue.sandbox.commands.repositories import Folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MOST = 4096


class Sealed:
    """Raises `CannotSeal` if it cannot be sealed off, and OSError if its program cannot be started."""

    def __init__(self, request: dict[str, Any], standard: tuple[int, int, int], folder: int) -> None:
        self.code: int | None = None
        self.broken = ""
        self._first = 0
        self._gone = False
        self._held = b""
        self._guards = Guards()
        self._leftovers: Leftovers | None = None
        view = request["seal"]
        try:
            if view["project"] is not None and view["writable"]:
                if view["unknown"]:
                    raise CannotSeal(view["unknown"])
                self._guards.guard(view["project"], view["nested"], view["own"], view["named"])
                self._leftovers = Leftovers(
                    view["project"],
                    self._guards.repositories,
                    self._guards.gits,
                    folders=Folders(view["folders"]),
                    complete=view["nested_complete"],
                    everywhere=view["everywhere"],
                )
            self._begin(request, standard, folder)
        except BaseException:
            self.kill()
            self._wait()
            self._guards.leave()
            raise

    def _begin(self, request: dict[str, Any], standard: tuple[int, int, int], folder: int) -> None:
        ending.adopt_orphans()
        self._told, telling = os.pipe()
        taking, self._orders = os.pipe()
        between = os.fork()
        if between == 0:
            os.close(self._told)
            os.close(self._orders)
            _between(request, self._guards, standard, folder, taking, telling)
        os.close(telling)
        os.close(taking)
        os.waitpid(between, 0)
        while True:
            kind, text = self._line()
            if kind == inside.PID:
                self._first = int(text)
            elif kind == inside.RUNS:
                break
            elif kind == inside.NOT_STARTED:
                raise OSError(int(text), os.strerror(int(text)))
            else:
                raise CannotSeal(text or "it ended before the command began")
        os.set_blocking(self._told, False)

    def _line(self) -> tuple[bytes, str]:
        """The next thing that is told; empty if nothing is left to tell, or nothing yet."""
        while b"\n" not in self._held and len(self._held) < MOST:
            more = os.read(self._told, MOST)
            if not more:
                return b"", ""
            self._held += more
        line, _, self._held = self._held.partition(b"\n")
        return line[:1], line[1:].decode("utf-8", "surrogateescape")

    @property
    def watch(self) -> int:
        return self._guards.watch

    @property
    def tells(self) -> int:
        return self._told

    def look(self) -> bool:
        if not self.broken and not self._gone and (path := self._guards.replaced()):
            self.broken = (
                f"{path} was replaced from outside meanwhile, and could no longer be guarded. Look at what "
                "it did, then run it again"
            )
            self.kill()
        if not self.broken and not self._gone and self._leftovers and (path := self._leftovers.linked()):
            self.broken = (
                f"{path} is a repository that it made and added to the project's: git would run what its "
                "settings name. Make one in a command and add it in the next"
            )
            self.kill()
        with contextlib.suppress(BlockingIOError, ValueError):
            while self.code is None:
                kind, text = self._line()
                if not kind:
                    break
                if kind == inside.EXITED:
                    self.code = int(text)
                elif kind == inside.TOO_LARGE:
                    self.broken = f"it and what it started took more than {text} GB of memory together"
        self._gone = self._gone or ending.reaped()[1]
        return self._gone

    def ask_to_end(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._orders, inside.ASK_TO_END)

    def kill(self) -> bool:
        if self._first and not self._gone:
            with contextlib.suppress(OSError):
                os.kill(self._first, signal.SIGKILL)
        return True

    def leave(self) -> str:
        try:
            return self._leftovers.settle() if self._leftovers else ""
        finally:
            self._guards.leave()

    def _wait(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


def _between(
    request: dict[str, Any],
    guards: Guards,
    standard: tuple[int, int, int],
    folder: int,
    orders: int,
    told: int,
) -> NoReturn:
    """Leaves the host's namespaces, for which it takes a child to be wholly out. The supervisor adopts it."""
    try:
        inside.enter(request["seal"]["network"])
        child = os.fork()
        if child == 0:
            inside.live(request, guards, standard, folder, orders, told)
        inside.say(told, inside.PID, str(child))
    except CannotSeal as error:
        inside.say(told, inside.FAILED, str(error))
    except OSError as error:
        inside.say(told, inside.FAILED, f"{error.strerror or error}")
    finally:
        os._exit(0)
