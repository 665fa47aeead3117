"""`retinue keys`: keys of providers, kept in the keyring of the system. No key is ever shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.root import new_group

if TYPE_CHECKING:
    from retinue.models.providers import Provider
    from retinue.settings import Settings

app = new_group(
    "Keys of providers, kept in the keyring of the system instead of the environment.",
    ("keys set anthropic", "keys list", "keys remove anthropic"),
)
ProviderName = Annotated[
    str, typer.Argument(metavar="PROVIDER", help="A provider; see docs/models.md.", show_default=False)
]


@app.command("set")
def set_key(provider: ProviderName, cwd: o.Cwd = None) -> int:
    """Keep the key of a provider in the keyring. It is asked for, and not shown; a pipe may give it too.

    It is used where the environment has none, and sent to the provider's present address alone.

    \b
    Examples:
      retinue keys set anthropic
      pass show openai | retinue keys set openai
    """
    from retinue.errors import ConfigError
    from retinue.models import kept_keys
    from retinue.models.providers import key_variables
    from retinue.view.paint import note

    settings = _settings(cwd)
    found = _provider(provider, settings)
    system = kept_keys.where()  # says what is missing before anybody types a key
    secret = _read(found.name)
    if not secret or any(each.isspace() or not each.isprintable() for each in secret):
        raise ConfigError(
            "that is no key" if secret else "no key was given", fix="paste it as the provider shows it"
        )
    kept_keys.keep(found.name, found.base_url, secret)
    _remember(found.name, there=True)
    note(f"the key of {found.name} is in {system}; it is sent to {found.base_url} alone", "green")
    hiding = [name for name in key_variables(found) if os.environ.get(name)]
    if hiding:
        note(f"! {hiding[0]} is set as well, and counts first", "yellow")
    return exits.OK


@app.command("list")
def list_keys(cwd: o.Cwd = None, json: o.Json = False) -> int:
    """List the providers that have a key, and where it is: in the environment or in the keyring.

    \b
    Examples:
      retinue keys list
      retinue keys list --json
    """
    import json as json_format

    from retinue.view.paint import note, out_json
    from retinue.view.table import TableColumn, print_table

    found = _places(_settings(cwd))
    if json:
        for name, place in found:
            out_json(json_format.dumps({"provider": name, "place": place}))
    elif found:
        heads = (TableColumn(title="PROVIDER"), TableColumn(title="KEY IN", flexible=True))
        print_table(heads, [[(name, ""), (place, "dim")] for name, place in found], sys.stdout)
    else:
        note("there are none: 'retinue keys set PROVIDER' keeps one", "dim")
    return exits.OK


@app.command("remove")
def remove_key(provider: ProviderName, cwd: o.Cwd = None) -> int:
    """Take the key of a provider out of the keyring, whatever address it was kept for.

    \b
    Examples:
      retinue keys remove anthropic
    """
    from retinue.models import kept_keys
    from retinue.models.providers import PROVIDERS
    from retinue.view.paint import note

    found = _provider(provider, _settings(cwd))
    usual = PROVIDERS.get(found.name, found)
    gone = kept_keys.forget(found.name, found.base_url, usual.base_url)
    _remember(found.name, there=False)
    for address in gone:
        note(f"the key of {found.name} for {address} is not in the keyring any more", "green")
    if not gone:
        note(f"the keyring had none of {found.name}", "dim")
    return exits.OK


def _settings(cwd: Path | None) -> Settings:
    from retinue.settings import load

    return load(cwd=(cwd or Path()).absolute()).settings


def _provider(name: str, settings: Settings) -> Provider:
    from retinue.errors import ConfigError
    from retinue.models import providers

    found = providers.find(name, settings=settings, environ=os.environ)
    if found is None:
        known = ", ".join(each for each in providers.names(settings) if each != "offline")
        raise ConfigError(f"unknown provider {name!r}", fix=f"known: {known}")
    return found


def _read(provider: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline(100_000).strip()
    from getpass import getpass

    return getpass(f"key of {provider} (it is not shown): ").strip()


def _places(settings: Settings) -> list[tuple[str, str]]:
    from retinue.errors import ConfigError
    from retinue.models.providers import find, key_variables, names

    found: list[tuple[str, str]] = []
    for name in names(settings):
        try:
            provider = find(name, settings=settings, environ=os.environ)
        except ConfigError:
            continue
        variables = [each for each in (key_variables(provider) if provider else ()) if os.environ.get(each)]
        found += [(name, each) for each in variables]
        if name in settings.keyring:
            found.append((name, "the keyring"))
    return found


def _remember(name: str, *, there: bool) -> None:
    """That the keyring has a key of this provider, in the person's own settings. The key itself is not."""
    from retinue.settings.toml_file import changing_own

    with changing_own() as file:
        named = [each for each in file.values().get("keyring", ()) if each != name]
        file.put_list("keyring", [*named, *([name] if there else ())])
