"""The first start of the chat: what this is, which models are there, and one of them tried and written down.

Called by the chat where no model is set, and by `retinue setup`. A person is asked once in their life: the
answer, also a no, is kept in a small file of theirs. It never sends anything before the person chose.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.typed_line import typed_line
from retinue.errors import RetinueError
from retinue.view.paint import note

if TYPE_CHECKING:
    from retinue.cli.found_models import FoundModel
    from retinue.settings import LoadedSettings

TRY_SECONDS = 120.0
"""For the one call: a server of one's own may have to load its model first."""
MOST_OFFERED = 12
TOLD, ANSWERED = "told", "answered"

ABOUT = """\
Retinue: an assistant with a staff, here in your terminal.
  Ask in your own words. It reads files, looks things up,
  runs commands, and has other agents do parts of the work.
  It asks before it changes anything; /undo restores files.
  What you say and what it reads goes to the model you use."""
NOTHING = """\
It needs a language model, and found none here. Either
  export ANTHROPIC_API_KEY=…   (or OPENAI_…, GEMINI_…)
  ollama serve                 (LM Studio, llama.cpp, vLLM)
and start it again: it finds them. Until then it answers
by rules, offline."""
"""Both fit into 60 columns."""


def setup(cwd: o.Cwd = None) -> int:
    """Find the models that can be used here, try one, and make it the default.

    Looks at keys in the environment and the keyring, and for Ollama, LM Studio, llama.cpp and vLLM on this
    machine. The chat asks the same at its first start, once.

    \b
    Examples:
      retinue setup
    """
    from retinue import settings

    loaded = settings.load(cwd=(cwd or Path()).absolute())
    return asyncio.run(_setup(loaded))


async def _setup(loaded: LoadedSettings) -> int:
    found = await _looked(loaded)
    if not found:
        note(NOTHING.partition("\n")[0])
        for line in NOTHING.splitlines()[1:3]:
            note(line)
        return exits.FAILED
    chosen = await _chosen(found, loaded)
    remember(ANSWERED)
    return exits.OK if chosen else exits.FAILED


async def first_hour(loaded: LoadedSettings) -> str | None:
    """The model that the person chose for now, or None. Asks nobody who was asked before, and nobody who has
    set a model or the address of one."""
    before = remembered()
    if before == ANSWERED or _is_set(loaded):
        return None
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    found = await _looked(loaded)
    if not before or found:
        for line in ABOUT.splitlines():
            note(line)
    if not found:
        if not before:
            for line in NOTHING.splitlines():
                note(line)
            remember(TOLD)
        return None
    chosen = await _chosen(found, loaded)
    remember(ANSWERED)
    return chosen


def _is_set(loaded: LoadedSettings) -> bool:
    """Whether the person has said which model: by a setting, or by an address of their own."""
    from retinue.models.providers import PROVIDERS

    addresses = (name for provider in PROVIDERS.values() for name in provider.base_env[:1])
    return bool(loaded.settings.model) or any(os.environ.get(name, "").strip() for name in addresses)


async def _looked(loaded: LoadedSettings) -> list[FoundModel]:
    from retinue.cli.found_models import found_models

    return (await found_models(loaded.settings, os.environ))[:MOST_OFFERED]


async def _chosen(found: Sequence[FoundModel], loaded: LoadedSettings) -> str | None:
    """Offer, try, write down. What does not answer is offered again, with the others."""
    note("It needs a language model. These are here:")
    width = max(len(model.name) for model in found)
    for number, model in enumerate(found, 1):
        note(f"  {number:2}  {model.name:{width}}  {model.why}")
    note("   0  none for now: it answers by rules, offline")
    while True:
        number = _number(_answer("Which one? [1] "))
        if number == 0:
            note("'retinue setup' asks again, whenever you like", "dim")
            return None
        model = found[number - 1] if number is not None and number <= len(found) else None
        if model is not None and await _tried(model.name, loaded):
            break
        note(f"A number from 1 to {len(found)}, or 0 for none", "dim")
    if _answer(f"Write it down as your default ({_file()})? [Y/n] ").lower() in ("", "y", "yes"):
        _write(model.name)
    else:
        note("Only for now, then. 'retinue setup' asks again, whenever you like", "dim")
    return model.name


def _number(said: str) -> int | None:
    """Enter and a yes are the first, a no is none. None: not understood."""
    if said.isdecimal():
        return int(said)
    return {"": 1, "y": 1, "yes": 1, "n": 0, "no": 0}.get(said.lower())


def _answer(question: str) -> str:
    line = typed_line(question)
    return "0" if line is None else line


async def _tried(name: str, loaded: LoadedSettings) -> bool:
    """One call, for one word."""
    from retinue.models.connect import connect
    from retinue.models.http import Client
    from retinue.types import ModelRequest, UserMessage

    request = ModelRequest(
        system="", messages=(UserMessage(text="Answer with the one word: ready"),), timeout=TRY_SECONDS
    )
    note(f"asking {name} for one word …", "dim")
    began = time.monotonic()
    try:
        async with (
            Client() as client,
            asyncio.timeout(TRY_SECONDS),
            aclosing(connect(name, settings=loaded.settings, client=client).stream(request)) as said,
        ):
            async for _ in said:
                pass
    except TimeoutError:
        note(f"✗ {name} did not answer in {TRY_SECONDS:.0f} seconds", "red")
        return False
    except RetinueError as error:
        note(f"✗ {error}", "red")
        return False
    note(f"✓ {name} answers, after {time.monotonic() - began:.1f} s", "green")
    return True


def _file() -> Path:
    from retinue.settings import user_file

    return user_file()


def _write(name: str) -> None:
    from retinue.settings.toml_file import changing_own

    try:
        with changing_own() as file:
            file.put("model", name)
    except (RetinueError, OSError) as error:
        note(f"! it is used now, but could not be written down: {error}", "yellow")
        return
    note(f"model = {name!r} in {file.path}; 'retinue config set model' changes it", "green")


def _kept() -> Path:
    from platformdirs import user_state_path

    return user_state_path("retinue") / "first-hour"


def remembered() -> str:
    """Whether this person was told or asked before."""
    try:
        return _kept().read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def remember(how: str) -> None:
    try:
        _kept().parent.mkdir(parents=True, exist_ok=True)
        _kept().write_text(f"{how}\n", encoding="utf-8")
    except OSError as error:
        note(f"! that you were asked could not be kept: {error}", "yellow")
