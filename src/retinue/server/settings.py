"""Every setting with its value, its default and where it came from; and changing the user's own file.

Changes are checked before anything is written, and count for runs that start from then on. What would let
agents do more, send work elsewhere or cost more needs an admin. Passwords in addresses are never shown.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter

from retinue import settings as configuration
from retinue.errors import ConfigError
from retinue.masking import is_masked, masked
from retinue.server.about import ChangeSettings, SettingGroup, SettingList, SettingOut
from retinue.server.context import Served, Server, Who, for_role
from retinue.server.errors import ApiError
from retinue.server.security import Role
from retinue.settings.toml_file import TomlFile, changing_own
from retinue.threads import to_its_end
from retinue.values_given import check_value

router = APIRouter(tags=["settings"])
_changing = asyncio.Lock()


@router.get("/settings", **for_role("watch"))
async def list_settings(served: Served) -> SettingList:
    """Every setting, its value and where it came from."""
    return await _listed(served)


@router.put("/settings", **for_role("approve"))
async def change_settings(body: ChangeSettings, served: Served, who: Who) -> SettingList:
    """Set settings for good, in the user's own file. All of them or none."""
    for name, value in body.settings.items():
        if name not in configuration.declared():
            raise ApiError(422, "invalid", f"there is no setting {name[:80]!r}", fix="GET /api/v1/settings")
        who.require(_needed(name), f"the setting {name}")
        if is_masked(value):
            raise ApiError(422, "invalid", f"{name} has its password hidden", fix="write it out")
    async with _changing:
        await to_its_end(_write, served, body.settings)
        loaded = await to_its_end(served.retinue.reload)
    file = str(configuration.user_file())
    hidden = [
        f"{name} is set in {file}, but here and now the value from {loaded.origins[name]} counts"
        for name, value in body.settings.items()
        if value is not None and loaded.origins.get(name) not in (None, file)
    ]
    return await _listed(served, hidden)


def _needed(name: str) -> Role:
    return "approve" if configuration.declared()[name].says.approver else "admin"


def _write(served: Server, changes: dict[str, Any]) -> None:
    with changing_own() as file:
        _change(file, served, changes)


def _change(file: TomlFile, served: Server, changes: dict[str, Any]) -> None:
    values = file.values()
    for name in configuration.LISTS:
        values.pop(name, None)
    for name, value in changes.items():
        if value is None:
            file.remove(name)
            values.pop(name, None)
        else:
            values[name] = value
    built = configuration.build(values, dict.fromkeys(changes, "the request"))
    settings = built if "providers" in changes else served.retinue.settings
    for name, value in changes.items():
        check_value(name, value, settings, served.retinue.services.agent)
    try:
        for name, value in changes.items():
            if value is not None:
                file.put(name, value)
    except (TypeError, ValueError) as error:  # TOML has no null
        raise ConfigError(f"this cannot be written as TOML: {error}") from None


async def _listed(served: Server, hidden: list[str] | None = None) -> SettingList:
    retinue = served.retinue
    loaded = retinue.loaded
    now = configuration.values_of(loaded.settings)
    default = configuration.values_of(configuration.Settings())
    shown = [
        SettingOut(
            name=name,
            value=masked(now.get(name)),
            default=default.get(name),
            description=setting.says.about,
            origin=loaded.origins.get(name, "default"),
            variable=setting.variable,
            arguments=setting.schema(),
            needs=_needed(name),
            per_run=setting.says.per_run,
            restart=setting.says.restart,
        )
        for name, setting in configuration.declared().items()
    ]
    used = [total.key for total in await retinue.store.totals("model")]
    models = [name for name in dict.fromkeys((retinue.model_name, *used, "offline")) if "://" not in name]
    groups = [
        SettingGroup(name=name, title=table.group.title, about=table.group.about)
        for name, table in configuration.tables().items()
    ]
    return SettingList(
        settings=shown,
        groups=groups,
        warnings=[*loaded.warnings, *(hidden or ())],
        file=str(configuration.user_file()),
        model=masked(retinue.model_name),
        models=models,
    )
