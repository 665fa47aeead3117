"""Databases that fail when a test says so: SQLite connections that count, and a wire to PostgreSQL that breaks.

The faults are real where they can be (a lock that another connection holds, a file that may not grow, a
connection that is cut). Where only a broken disk could make one, SQLite's own error is raised by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any


def sqlite_error(name: str, text: str = "disk I/O error") -> sqlite3.OperationalError:
    """An error as SQLite raises it."""
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


class Faults:
    """Told of every statement before it is carried out (`before`) and after it (`after`); may raise."""

    def __init__(
        self,
        before: Callable[[sqlite3.Connection, str], None] | None = None,
        after: Callable[[sqlite3.Connection, str], None] | None = None,
    ) -> None:
        self.before, self.after = before, after
        faults = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
                if faults.before is not None:
                    faults.before(self, sql)
                done = super().execute(sql, parameters)
                if faults.after is not None:
                    faults.after(self, sql)
                return done

        self.factory = Connection


class Lock:
    """The lock of another program on an SQLite file."""

    def __init__(self, path: Path | str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def __enter__(self) -> Lock:
        self._connection.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


class Wire:
    """Passes bytes between a store and PostgreSQL. Can be cut, taken away for a while, or lose one answer.

    `sent` is told of all that the store sends, before it is passed on: True cuts the connection instead.
    """

    def __init__(self, url: str, port: int) -> None:
        self._url, self._port = url, port
        self.sent: Callable[[bytes], bool] | None = None
        self.lose_answer_to: bytes | None = None
        self.lost = 0
        self.refused = 0
        self._deaf = False
        self._away = False
        self._ends: list[asyncio.StreamWriter] = []

    async def start(self) -> str:
        self._listener = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        return self._url.replace(f":{self._port}/", f":{port}/")

    async def stop(self) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End every connection."""
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    def take_away(self) -> None:
        """End every connection, and every new one at once, as where nothing answers."""
        self._away = True
        self.cut()

    def bring_back(self) -> None:
        self._away = False

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._away:
            self.refused += 1
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._ends += [writer, far_writer]
        await asyncio.gather(
            self._pass(reader, far_writer, answers=False), self._pass(far_reader, writer, answers=True)
        )

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if answers and self._deaf:
                    self._deaf, self.lost = False, self.lost + 1
                    self.cut()
                    return
                if not answers and self.sent is not None and self.sent(data):
                    self.cut()
                    return
                if not answers and self.lose_answer_to is not None and self.lose_answer_to in data:
                    self._deaf, self.lose_answer_to = True, None
                writer.write(data)
            writer.close()
