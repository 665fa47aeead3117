"""Values that can be typed at the shell, as they are right now: agents, runs, settings, models, tools.

Called by `completing`, for a parameter of a command. Which values a parameter takes is in one table, by its
name and where the same name means several things by its command. Reads this machine, and changes nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

if TYPE_CHECKING:
    from retinue.store.base import Store
    from retinue.store.runs import RunRow

T = TypeVar("T")
Offered = tuple[str, str]
"""A value, and what it is."""
MOST_RUNS = 50
PATIENCE = 2.0
"""Seconds for a database to answer while somebody waits for the Tab key."""


def offered_for(command: str, parameter: str, words: list[str]) -> Iterable[Offered]:
    """The values of a parameter; none where nobody can know them. `words` are those before."""
    found = VALUES.get(parameter)
    if parameter == "name":
        found = NAMES.get(command) or NAMES.get(command.partition(" ")[0])
    if command == "config set" and parameter == "value":
        return _allowed(words)
    return () if found is None else found(words)


def agents(words: list[str]) -> Iterator[Offered]:
    from retinue.agents import load_agents
    from retinue.settings import read_user_file

    for name, loaded in load_agents(Path.cwd(), trusted=read_user_file().trusted).agents.items():
        yield name, loaded.spec.description


def skills(words: list[str]) -> Iterator[Offered]:
    from retinue.kept_files import kept_here
    from retinue.skills import load_skills

    for skill in load_skills(Path.cwd(), kept=kept_here(Path.cwd())).skills.values():
        yield skill.name, skill.description


def tools(words: list[str]) -> Iterator[Offered]:
    from retinue.builtin_tools import BUILT_IN
    from retinue.kept_files import kept_here
    from retinue.settings import read_user_file
    from retinue.tool_files import find_tool_files

    yield from ((name, "") for name in BUILT_IN)
    for file in find_tool_files(Path.cwd(), read_user_file().trusted, kept=kept_here(Path.cwd())):
        yield from ((name, f"yours, of {file.path}") for name in file.names)


def servers(words: list[str]) -> Iterator[Offered]:
    from retinue.cli.mcp_servers import servers_of

    for name, server in servers_of(None).servers.items():
        yield name, server.command_line


def setting_names(words: list[str]) -> Iterator[Offered]:
    from retinue.settings import declared

    for name, setting in declared().items():
        yield name, setting.says.about


def _allowed(words: list[str]) -> Iterator[Offered]:
    """The values of a setting that has only a few."""
    from retinue.settings import declared

    named = [word for word in words if word in declared()]
    if not named:
        return
    setting = declared()[named[-1]]
    if named[-1] in ("model", "small_model"):
        yield from models(words)
    elif named[-1] == "default_agent":
        yield from agents(words)
    else:
        yield from ((each, "") for each in setting.choices())


def providers(words: list[str]) -> Iterator[Offered]:
    from retinue.models.providers import names
    from retinue.settings import load

    yield from ((name, "") for name in names(load().settings) if name != "offline")


def models(words: list[str]) -> Iterator[Offered]:
    """What is set, what keys are there for, and what 'retinue models' listed."""
    from retinue.cli.listed_before import listed_before
    from retinue.models.providers import PROVIDERS, key_place
    from retinue.settings import load

    settings = load().settings
    found = {name: "set" for name in (settings.model, settings.small_model) if name}
    for provider in PROVIDERS.values():
        for model in (provider.model, provider.small):
            if model and key_place(provider, settings, os.environ):
                found.setdefault(f"{provider.name}:{model}", f"of {provider.name}")
    for name in listed_before():
        found.setdefault(name, "listed by 'retinue models'")
    found.setdefault("offline", "rules, no language model")
    yield from found.items()


def runs(words: list[str]) -> Iterator[Offered]:
    from retinue.view.words import one_line

    yield "last", "the newest"
    for row in _read(words, _newest):
        yield row.run_id, f"{row.outcome}: {one_line(row.label or row.task, 60)}"


def approvals(words: list[str]) -> Iterator[Offered]:
    yield from _read(words, _asked)


async def _newest(store: Store) -> list[RunRow]:
    from retinue.store.base import RunFilter

    return list(await store.runs(RunFilter(roots_only=True, limit=MOST_RUNS)))


async def _asked(store: Store) -> list[Offered]:
    return [(each.approval_id, each.tool) for each in await store.waiting()]


def _read(words: list[str], work: Callable[[Store], Awaitable[list[T]]]) -> list[T]:
    """What a database says, if there is one and it answers soon."""
    from retinue.cli.checks import sqlite_path
    from retinue.settings import load
    from retinue.store.connect import connect, default_url

    named = [after for option, after in itertools.pairwise(words) if option == "--db"]
    url = named[-1] if named else load().settings.db or default_url()
    path = sqlite_path(url)
    if path is not None and not path.exists():
        return []

    async def main() -> list[T]:
        store = connect(url)
        async with asyncio.timeout(PATIENCE):
            await store.open()
            try:
                return await work(store)
            finally:
                await store.close()

    return asyncio.run(main())


def statuses(words: list[str]) -> Iterator[Offered]:
    from retinue.types.outcomes import Status

    yield from ((each, "") for each in get_args(Status))


def outcomes(words: list[str]) -> Iterator[Offered]:
    from retinue.types.outcomes import Outcome

    yield from ((each, "") for each in get_args(Outcome))


VALUES: dict[str, Callable[[list[str]], Iterable[Offered]]] = {
    "agent": agents,
    "source": agents,
    "model": models,
    "small_model": models,
    "judge": models,
    "provider": providers,
    "run": runs,
    "resume": runs,
    "approval": approvals,
    "status": statuses,
    "outcome": outcomes,
}
"""By the name of a parameter."""
NAMES: dict[str, Callable[[list[str]], Iterable[Offered]]] = {
    "agents show": agents,
    "skills show": skills,
    "tools show": tools,
    "config": setting_names,
    "mcp": servers,
}
"""What NAME stands for, by its command or the group of it."""
