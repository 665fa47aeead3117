"""What a run may be given that workers do: all that a log can hold. Called by `beginnings` before anything is
written.

Functions, objects and secrets are in no log. What all runs share is given to the workers as well, by their
own settings or by the program that they are; what one run alone is given would be missing there.
"""

from __future__ import annotations

from collections.abc import Iterable

from retinue.engine.config import WorkflowConfig
from retinue.engine.hand_over import ToWorkers, queue_name
from retinue.errors import ConfigError
from retinue.run_parts import RunParts
from retinue.settings import Settings
from retinue.types import AgentSpec, GivenObjects


def to_workers(settings: Settings, config: WorkflowConfig) -> ToWorkers:
    """The workers that a workflow is for: those of its queue that have its folder."""
    return ToWorkers(
        queue=queue_name(settings.workers.queue, str(config.project or "")),
        priority=settings.workers.priority,
        answering=config.answering,
        yes=config.options.yes,
    )


def refuse_what_stays_here(
    parts: RunParts,
    *,
    deps: object,
    spec: AgentSpec | None = None,
    models: Iterable[str] = (),
    headers: Iterable[str] = (),
) -> None:
    """Refuse what this run alone is given and no worker could have. `models` are the names of objects, and
    `headers` of values, that it is given beside its `spec`."""
    names = [*(tool.name for tool in parts.tools), *(each.name for each in parts.agents)]
    if names:
        _refuse(f"the tools and agents {', '.join(names)}, which are objects of this program")
    if deps is not None:
        _refuse("deps, which are objects of this program")
    given = None if spec is None else spec.given
    objects = [*models, *(given.models if isinstance(given, GivenObjects) else ())]
    if objects:
        _refuse(f"the model {', '.join(objects)}, which is an object of this program")
    hidden = [*headers, *(spec.model_settings.headers.hidden() if spec is not None else ())]
    if hidden:
        _refuse(f"the header {hidden[0]!r}, whose value no log keeps")


def _refuse(what: str) -> None:
    raise ConfigError(
        f'this run is done by workers (engine = "workers"), and it alone is given {what}',
        fix="give it to the Retinue of the workers, for all runs; or do this run here: engine = 'local'",
    )
