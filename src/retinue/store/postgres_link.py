"""Connections to PostgreSQL: the one place that knows asyncpg, and what its failures mean.

Called by `PostgresStore` and its writer. No password ever leaves this module in a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import unquote, urlsplit

from retinue.errors import ConfigError, StoreError
from retinue.store import migrate

T = TypeVar("T")

# Any number, the same in every version: whoever holds it is making or changing the tables.
_SCHEMA_LOCK = 7_283_001
_COMMAND_SECONDS = 60


class Link(Protocol):
    """What is used of an asyncpg connection."""

    async def fetch(self, query: str, *args: Any) -> list[Any]: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...
    async def execute(self, query: str, *args: Any) -> str: ...
    async def close(self, *, timeout: float | None = None) -> None: ...
    def terminate(self) -> None: ...
    def is_closed(self) -> bool: ...
    def transaction(self) -> Any: ...
    def get_server_pid(self) -> int: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...


class Address:
    """Where a database is. `str()` of it has no password."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._url = parts._replace(scheme="postgresql").geturl()
        self._secret = unquote(parts.password) if parts.password else None
        user = f"{parts.username}@" if parts.username else ""
        try:
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            raise ConfigError(
                f"the port in the database address of {parts.hostname} is not a number"
            ) from None
        self._shown = f"postgresql://{user}{parts.hostname or ''}{port}{parts.path}"

    def __str__(self) -> str:
        return self._shown

    async def connect(self) -> Link:
        """Raises `StoreError` if the server cannot be reached, or does not let us in."""
        asyncpg = driver()
        try:
            link = await asyncpg.connect(
                self._url,
                timeout=15,
                command_timeout=_COMMAND_SECONDS,
                # Places are given right only if each statement sees what was committed before it.
                server_settings={
                    "application_name": "retinue",
                    "default_transaction_isolation": "read committed",
                },
            )
        except (OSError, MemoryError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise self.explain(error, "cannot be reached") from None
        return cast("Link", link)

    def explain(self, error: BaseException, what: str = "failed") -> StoreError:
        """The same failure, as a person can act on it."""
        text = str(error) or type(error).__name__
        if self._secret:
            text = text.replace(self._secret, "***")
        name = type(error).__name__
        if name == "DiskFullError":
            advice = ". Free some space on the server's disk, or remove old runs with 'retinue runs prune'"
        elif name.startswith(("InvalidPassword", "InvalidAuthorization", "InsufficientPrivilege")):
            advice = ". Check the user, the password and the rights in the database address"
        elif what == "cannot be reached":
            advice = ". Check that the server runs and that the address is right"
        else:
            advice = ""
        return StoreError(f"the database {self} {what}: {text}{advice}", passing=can_pass(error))


def driver() -> Any:
    try:
        import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has no types
    except ImportError:
        raise ConfigError(
            "a postgresql:// database needs the driver asyncpg", fix="pip install 'retinue[postgres]'"
        ) from None
    return cast("Any", asyncpg)


def is_lost(error: BaseException) -> bool:
    """Is the connection gone, so that nobody knows whether the statement was carried out?"""
    asyncpg = driver()
    return isinstance(
        error,
        OSError
        | TimeoutError
        | asyncpg.PostgresConnectionError
        | asyncpg.OperatorInterventionError
        | asyncpg.InternalClientError,
    ) or (isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError))


def can_pass(error: BaseException) -> bool:
    """May the same statement succeed later, with nothing changed here?

    The server is away, starts, stops, is a stand-by just now, has no connection, memory or space left, or
    another transaction was in the way. Not: it does not know us, or the statement.
    """
    asyncpg = driver()
    if isinstance(error, StoreError):
        return error.passing
    return (
        is_lost(error)
        or is_passing(error)
        or isinstance(
            error,
            MemoryError
            | asyncpg.InsufficientResourcesError
            | asyncpg.PostgresSystemError
            | asyncpg.ReadOnlySQLTransactionError
            | asyncpg.LockNotAvailableError,
        )
    )


def is_refused(error: BaseException) -> bool:
    """Did PostgreSQL, or its driver, say no to what it was asked?"""
    asyncpg = driver()
    return isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError)


def is_conflict(error: BaseException) -> bool:
    return isinstance(error, driver().UniqueViolationError)


def is_gone(error: BaseException) -> bool:
    """Does `retinue_append` say that the workflow was deleted?"""
    return getattr(error, "sqlstate", None) == "RET01"


def is_passing(error: BaseException) -> bool:
    """Would the very same statement succeed if it were tried again?"""
    asyncpg = driver()
    return isinstance(error, asyncpg.DeadlockDetectedError | asyncpg.SerializationError)


async def until_back(attempt: Callable[[], Awaitable[T]], *, seconds: float) -> T:
    """Try again, a little less often each time, for as long as the server is away."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, 0.05
    while True:
        try:
            return await attempt()
        except Exception as error:
            lost = error.passing if isinstance(error, StoreError) else is_lost(error)
            if not lost or loop.time() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, 2.0)


async def prepare(link: Link, address: Address) -> None:
    """Make the tables or bring them up to date."""
    where = f"the database {address}"
    try:
        try:
            found = await _held(link, migrate.version("postgresql", where))
        except Exception as error:
            if not is_refused(error):
                raise
            found = None  # another process changes the tables at this moment: then with the lock
        if found is not None and found.is_newest:
            return
        async with link.transaction():
            await link.execute("SELECT pg_advisory_xact_lock($1)", _SCHEMA_LOCK)
            await _held(link, migrate.upgrade("postgresql", where))
        progress, done = migrate.Progress(where), False
        while not done:
            async with link.transaction():
                done = await _held(link, migrate.fill("postgresql", progress))
    except Exception as error:
        if is_lost(error) or is_refused(error):
            raise address.explain(error) from None
        raise


async def _held(link: Link, conversation: migrate.Conversation[T]) -> T:
    """Answer every question of it from this connection."""
    try:
        query = next(conversation)
        while True:
            query = conversation.send(await link.fetch(query.sql, *query.params))
    except StopIteration as done:
        return done.value
