"""Settings for one run alone: which may be given, and who may widen what the server allows.

A token below admin may narrow (fewer turns, less money, flat), never widen. Nobody chooses an address to send
the conversation to but an admin: a model's address would get the prompt, and perhaps a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue import settings as configuration
from retinue.parameters import texts
from retinue.run_options import Metadata
from retinue.server.errors import ApiError
from retinue.server.models import ModelSettingsGiven
from retinue.server.security import Identity
from retinue.settings import Settings
from retinue.settings.trust import wider
from retinue.types import ModelSettings

FOR_ADMINS = ("extra_headers", "extra_body", "service_tier")
"""How a model is asked that may cost more, or send more than a prompt."""


def per_run() -> frozenset[str]:
    """What may be given for one run."""
    return frozenset(name for name, setting in configuration.declared().items() if setting.says.per_run)


def check(given: Mapping[str, Any], model: str | None, who: Identity, settings: Settings) -> dict[str, Any]:
    """The overrides of a run, or an `ApiError` that says which one is not for this client."""
    now = configuration.values_of(settings)
    for name, value in given.items():
        if name not in per_run():
            raise ApiError(
                422,
                "invalid",
                f"{name[:80]!r} cannot be set for one run",
                fix=configuration.similar_setting(name[:80], per_run())
                or "one of " + ", ".join(sorted(per_run())),
            )
        if not configuration.declared()[name].says.any_client and wider(name, value, now.get(name)):
            who.require("admin", f"{name} beyond what the server is set to ({now.get(name)!r})")
    overrides = dict(given)
    if model is not None:
        if "://" in model:
            who.require("admin", "a model by its address")
        overrides["model"] = model
    return overrides


def asked(given: ModelSettingsGiven | None, who: Identity) -> ModelSettings | None:
    """How the model of a run is asked, or an `ApiError` that says what is not for this client."""
    if given is None:
        return None
    said = {name: value for name, value in given.model_dump(exclude_unset=True).items() if value is not None}
    for name in FOR_ADMINS:
        if said.get(name):
            who.require("admin", f"model_settings.{name}")
    try:
        return ModelSettings(**said)
    except (TypeError, ValueError) as error:
        raise ApiError(422, "invalid", f"model_settings: {error}") from None


def described(given: Metadata, who: Identity) -> Metadata:
    """Metadata that a run can have. They may say whose it is, and so what its tools are handed: only an admin
    says that."""
    if given:
        who.require("admin", "metadata", fix="leave 'metadata' out, or ask with a token of the role admin")
    try:
        texts(given)
    except (TypeError, ValueError) as error:
        raise ApiError(422, "invalid", str(error)) from None
    return given
