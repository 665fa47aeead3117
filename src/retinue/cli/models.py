"""`retinue models`: what a provider lists, with prices where they are known."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
import typer

from retinue.cli import exits
from retinue.cli import options as o

if TYPE_CHECKING:
    from retinue.models.listing import ListedModel
    from retinue.models.providers import Provider
    from retinue.settings import Settings


class PricedModel(msgspec.Struct, frozen=True, kw_only=True):
    """`input` and `output` are US dollars for a million tokens, `context` tokens; None: nobody says."""

    name: str
    title: str
    context: int | None
    input: float | None
    output: float | None


def models(
    provider: Annotated[
        str | None,
        typer.Argument(
            metavar="PROVIDER", help="A provider, or the address of a server.", show_default=False
        ),
    ] = None,
    find: Annotated[
        str, typer.Option("--find", metavar="TEXT", help="Only those whose name has this in it.")
    ] = "",
    cwd: o.Cwd = None,
    json: o.Json = False,
) -> int:
    """List the models that a provider has, with their prices; without a provider, those of the model in use.

    Asks the provider itself, which needs its key and costs nothing. Prices are for a million tokens; where
    there is none, nobody knows it.

    \b
    Examples:
      retinue models
      retinue models anthropic
      retinue models openrouter --find kimi
      retinue models ollama --json
      retinue models http://127.0.0.1:8080/v1
    """
    from retinue import settings
    from retinue.cli.listed_before import keep_listed
    from retinue.view.paint import note, out_json

    loaded = settings.load(cwd=(cwd or Path()).absolute()).settings
    name = provider or _in_use(loaded, os.environ)
    if name == "offline":
        note("offline  (rules, no language model; 'retinue setup' finds what can be used here)")
        return exits.OK
    found = asyncio.run(_listed(name, loaded, os.environ))
    keep_listed(name, [model.name for model in found])
    wanted = [model for model in found if find.lower() in f"{model.name} {model.title}".lower()]
    if json:
        for model in wanted:
            out_json(msgspec.json.encode(model).decode())
    elif wanted:
        _print(wanted)
    else:
        note(f"none of {len(found)} models has {find!r} in its name" if find else f"{name} lists none", "dim")
    return exits.OK


def _in_use(settings: Settings, environ: Mapping[str, str]) -> str:
    """The provider of the model that would be asked."""
    from retinue.models.providers import default_model, split

    name = default_model(settings, environ)[0].split(",")[0].strip().removeprefix("text:")
    if name == "offline" or "://" in name:
        return name.partition("#")[0]
    return split(name, settings=settings)[0]


async def _listed(name: str, settings: Settings, environ: Mapping[str, str]) -> list[PricedModel]:
    from retinue.errors import ModelError
    from retinue.models.connect import advice
    from retinue.models.http import Client, HttpRefused
    from retinue.models.keys import KeyPool
    from retinue.models.listing import listed_models
    from retinue.models.providers import keys_of
    from retinue.view.patience import told_when_slow

    provider = _provider(name, settings, environ)
    keys, bearer = keys_of(provider, environ, keyring=settings.keyring)
    pool = KeyPool(keys, provider=provider.name)
    try:
        async with told_when_slow(f"asking {provider.base_url}"), Client() as client:
            found = await listed_models(provider, client=client, keys=pool, bearer=bearer)
    except HttpRefused as error:
        usual = "look at its key" if error.status in (401, 403) else "look at its address"
        fix = advice(provider, error.status) or usual
        raise ModelError(
            f"{provider.base_url} answers {error.status}: {fix}",
            kind="auth" if error.status in (401, 403) else "not_found",
        ) from None
    return await asyncio.to_thread(_priced, name, provider, found, settings)


def _provider(name: str, settings: Settings, environ: Mapping[str, str]) -> Provider:
    from difflib import get_close_matches

    from retinue.errors import ConfigError
    from retinue.models import providers
    from retinue.models.connect import check_scheme

    if name.startswith(("http://", "https://")):
        base = name.partition("#")[0].rstrip("/")
        own = environ.get("OPENAI_BASE_URL", "").rstrip("/") == base  # whose key is nobody else's
        return providers.Provider(
            name=base,
            base_url=base,
            key_env=("OPENAI_API_KEY",) if own else (),
            needs_key=False,
            own_address=False,
        )
    found = providers.find(name, settings=settings, environ=environ)
    if found is None:
        known = [each for each in providers.names(settings) if each != "offline"]
        near = get_close_matches(name, known, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"there is no list of models of {name!r}", fix=f"{meant}known: {', '.join(known)}")
    check_scheme(found)
    return found


def _priced(
    name: str, provider: Provider, found: Sequence[ListedModel], settings: Settings
) -> list[PricedModel]:
    from retinue.models.http import is_loopback
    from retinue.models.prices import cost_of

    priced: list[PricedModel] = []
    # A gateway elsewhere passes the bill on; a server on this machine has no known price.
    known = provider.own_address or not is_loopback(urlsplit(provider.base_url).hostname or "")
    for model in sorted(found, key=lambda each: each.id):
        rates = cost_of(provider.name, model.id, prices=settings.prices, known=known).lowest()
        priced.append(
            PricedModel(
                name=f"{provider.name}#{model.id}" if "://" in name else f"{name}:{model.id}",
                title=model.title,
                context=model.context,
                input=rates.input if rates else None,
                output=rates.output if rates else None,
            )
        )
    return priced


def _print(found: Sequence[PricedModel]) -> None:
    from retinue.view import words
    from retinue.view.table import TableColumn, print_table

    heads = (
        TableColumn(title="MODEL"),
        TableColumn(title="IN", right=True),
        TableColumn(title="OUT", right=True),
        TableColumn(title="CONTEXT", right=True, rank=1),
        TableColumn(title="TITLE", flexible=True, rank=2),
    )
    rows = [
        [
            (words.clean(model.name), ""),
            (_money(model.input), "dim"),
            (_money(model.output), "dim"),
            (words.tokens(model.context) if model.context else "", "dim"),
            (words.clean(model.title), "dim"),
        ]
        for model in found
    ]
    print_table(heads, rows, sys.stdout)


def _money(price: float | None) -> str:
    return "" if price is None else "free" if price == 0 else f"${price:.2f}"
