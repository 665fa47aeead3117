"""Every setting with its value, its default and where it came from; and changing the user's own file.

Changes are checked before anything is written, and count for runs that start from then on. What would let
agents do more, send work elsewhere or cost more needs an admin. Passwords in addresses are never shown.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import TypeAdapter

from retinue import settings as configuration
from retinue.cli.toml_file import TomlFile
from retinue.errors import ConfigError
from retinue.masking import is_masked, masked
from retinue.server.about import ChangeSettings, SettingList, SettingOut
from retinue.server.context import Served, Server, Who, for_role
from retinue.server.errors import ApiError
from retinue.server.overrides import PER_RUN
from retinue.server.security import Role

router = APIRouter(tags=["settings"])
HARMLESS = frozenset(
    {
        "default_agent",
        "delegation.enabled",
        "knowledge.first",
        "knowledge.agent",
        "knowledge.timeout",
        "knowledge.request_timeout",
        "knowledge.cache_ttl",
        "web.cache_ttl",
        "sheets.enabled",
        "context.max_tokens",
        "context.keep_turns",
        "context.threshold",
        "context.mode",
    }
)
_RESTART = ("db", "server.", "web.", "knowledge.", "code.", "workspace.root")
_changing = asyncio.Lock()


@router.get("/settings", **for_role("watch"))
async def list_settings(served: Served) -> SettingList:
    """Every setting, its value and where it came from."""
    return await _listed(served)


@router.put("/settings", **for_role("approve"))
async def change_settings(body: ChangeSettings, served: Served, who: Who) -> SettingList:
    """Set settings for good, in the user's own file. All of them or none."""
    for name, value in body.settings.items():
        if name not in configuration.names():
            raise ApiError(422, "invalid", f"there is no setting {name[:80]!r}", fix="GET /api/v1/settings")
        who.require(_needed(name), f"the setting {name}")
        if is_masked(value):
            raise ApiError(422, "invalid", f"{name} has its password hidden", fix="write it out")
    async with _changing:
        await asyncio.to_thread(_write, body.settings)
        loaded = await asyncio.to_thread(served.retinue.reload)
    file = str(configuration.user_file())
    hidden = [
        f"{name} is set in {file}, but here and now the value from {loaded.origins[name]} counts"
        for name, value in body.settings.items()
        if value is not None and loaded.origins.get(name) not in (None, file)
    ]
    return await _listed(served, hidden)


def _needed(name: str) -> Role:
    return "approve" if name in HARMLESS else "admin"


def _write(changes: dict[str, Any]) -> None:
    file = TomlFile(configuration.user_file())
    values = file.values()
    values.pop("trust", None)
    for name, value in changes.items():
        if value is None:
            file.remove(name)
            values.pop(name, None)
        else:
            values[name] = value
    configuration.build(values, dict.fromkeys(changes, "the request"))
    try:
        for name, value in changes.items():
            if value is not None:
                file.put(name, value)
    except (TypeError, ValueError) as error:  # TOML has no null
        raise ConfigError(f"this cannot be written as TOML: {error}") from None
    file.save()


async def _listed(served: Server, hidden: list[str] | None = None) -> SettingList:
    retinue = served.retinue
    loaded = retinue.loaded
    now = configuration.flatten(loaded.settings.model_dump(mode="json"))
    default = configuration.flatten(configuration.Settings().model_dump(mode="json"))
    shown = [
        SettingOut(
            name=name,
            value=masked(now.get(name)),
            default=default.get(name),
            description=field.description or "",
            origin=loaded.origins.get(name, "default"),
            variable=configuration.variable(name),
            arguments=_schema(field),
            needs=_needed(name),
            per_run=name in PER_RUN,
            restart=name.startswith(_RESTART),
        )
        for name, field in configuration.names().items()
    ]
    used = [total.key for total in await retinue.store.totals("model")]
    models = [name for name in dict.fromkeys((retinue.model_name, *used, "offline")) if "://" not in name]
    return SettingList(
        settings=shown,
        warnings=[*loaded.warnings, *(hidden or ())],
        file=str(configuration.user_file()),
        model=masked(retinue.model_name),
        models=models,
    )


def _schema(field: Any) -> dict[str, Any]:
    annotation: Any = field.annotation
    for constraint in field.metadata:
        annotation = Annotated[annotation, constraint]
    return TypeAdapter(annotation).json_schema()
