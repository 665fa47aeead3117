"""Evaluations: an agent tried on many cases, so many at once, with a table of what came of it.

    result = await evaluate("grocer", cases, [names_a_price], retinue=retinue, tries=3)
    print(result.table())
    assert result.passed

Every try is a run of its own, under an id that follows from the agent, its model and the case: started again,
an evaluation does only what is missing. Built on `Retinue.map`; `retinue eval` does it for files of cases.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack, cast

from retinue.app import Retinue
from retinue.attachments import Attachment
from retinue.engine.config import models_given
from retinue.errors import ConfigError, told
from retinue.given import own_attachments
from retinue.map_batch import MapItem
from retinue.parameters import check, listed, shown
from retinue.run_ids import new_id
from retinue.run_options import RunWith, for_many_runs
from retinue.same_work import work_digest
from retinue.testing.eval_cases import EvalCase, EvalRun, EvalVerdict, expected, first_line
from retinue.testing.eval_result import EvalResult, EvalTry
from retinue.testing.judge import judged
from retinue.testing.story import story_of
from retinue.threads import in_own_task, in_own_thread, is_async
from retinue.types import AgentSpec, Deps, ModelGiven

Checked = bool | EvalVerdict | None
EvalCheck = Callable[[EvalRun], Checked | Awaitable[Checked]]
"""A check of a program: of a try that has ended. It fails by `False`, by an `EvalVerdict` that did not pass,
or by an `AssertionError`; async or not. Its name in the table is the function's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trial:
    """One case, for the so-manieth time."""

    case: EvalCase
    number: int

    @property
    def key(self) -> str:
        return f"{self.case.name} #{self.number}"


async def evaluate(
    agent: str | AgentSpec,
    cases: Iterable[EvalCase],
    checks: Iterable[EvalCheck] = (),
    *,
    retinue: Retinue[Deps] | None = None,
    tries: int = 1,
    concurrency: int = 10,
    name: str = "",
    fresh: bool = False,
    judge_model: str = "",
    heard: Callable[[EvalTry], None] | None = None,
    deps: Deps | None = None,
    **options: Unpack[RunWith[Deps]],
) -> EvalResult:
    """Try an agent on each of `cases`, `tries` times, and hold each try against what its case expects and
    `checks`.

    `retinue` is an open one; without it one is made for this, with the model that your settings or your key
    name. `concurrency` is how many tries go on at once. `judge_model` is who judges criteria in words
    (`Expect(judge=…)`): a name as in `AgentSpec(model=…)`; without it the model of the run.

    It is durable: started again with the same agent, model and cases, it does only what is missing, and what
    was done is shown again without being paid again. A change of the agent, of one that it delegates to, of
    `options` or of an attached file does everything anew, and so does `fresh`, or another `name`; a change of
    a tool's code or of a file of settings is not noticed. `heard` is called with each try as it ends. `deps`
    and `options` are those of `run`, for each try.
    """
    check(int, tries=tries, concurrency=concurrency)
    check(bool, fresh=fresh)
    if tries < 1:
        raise ConfigError(f"tries is {tries}: a case is tried at least once")
    options = for_many_runs(options)
    all_cases = _cases(cases)
    all_checks = listed("checks", checks, "functions of an EvalRun")
    for each in all_checks:
        if not callable(each):
            raise TypeError(f"checks holds {shown(each)}: give functions of an EvalRun")
    async with contextlib.AsyncExitStack() as stack:
        opened = retinue
        if opened is None:
            opened = cast("Retinue[Deps]", await stack.enter_async_context(Retinue[Any]()))
        judge = judge_model or _model_of_run(opened, agent, options)
        if judge_model:  # before anything is paid for
            opened.services.models.of(opened.settings, judge_model, None)
        files = await own_attachments(options.get("attachments", ()), opened.cwd, opened.project)
        options["attachments"] = files
        batch_name = f"{name or 'eval'} {new_id() if fresh else _digest(opened, agent, options, files)}"
        batch = opened.map(
            agent,
            [_Trial(case=case, number=number + 1) for case in all_cases for number in range(tries)],
            name=batch_name,
            key=lambda trial: trial.key,
            prompt=lambda trial: trial.case.prompt,
            concurrency=concurrency,
            redo=False,  # a try that lacks something counts as it ended
            deps=deps,
            **options,
        )
        holding = _Holding(opened, all_checks, judge, heard, concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                async for item in batch:
                    group.create_task(holding.hold(item))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        done = sorted(holding.tries, key=lambda each: each[0])
        return EvalResult(
            agent=agent if isinstance(agent, str) else agent.name,
            model=_models_in(done) or opened.model_name,
            tries=tuple(tried for _, tried in done),
        )


class _Holding:
    """Holds tries against what is expected of them, as they end: so many at once, since models may judge."""

    def __init__(
        self,
        retinue: Retinue[Any],
        checks: tuple[EvalCheck, ...],
        judge_model: ModelGiven,
        heard: Callable[[EvalTry], None] | None,
        concurrency: int,
    ) -> None:
        self.tries: list[tuple[int, EvalTry]] = []
        self._retinue, self._checks, self._judge_model, self._heard = retinue, checks, judge_model, heard
        self._free = asyncio.Semaphore(concurrency)

    async def hold(self, item: MapItem[_Trial]) -> None:
        async with self._free:
            tried = await self._tried(item)
        self.tries.append((item.index, tried))
        if self._heard is not None:
            self._heard(tried)

    async def _tried(self, item: MapItem[_Trial]) -> EvalTry:
        trial, report = item.input, item.report
        if report is None:
            error = told(item.error) if item.error is not None else "it has no report"
            return EvalTry(case=trial.case, number=trial.number, run_id=item.run_id, error=error)
        run = EvalRun(
            case=trial.case,
            number=trial.number,
            report=report,
            story=await story_of(self._retinue, item.run_id),
        )
        verdicts = [*expected(run), *[await _checked(each, run) for each in self._checks]]
        for criterion in trial.case.expect.judge:
            verdicts.append(await judged(self._retinue, run, criterion, model=self._judge_model))
        return EvalTry(
            case=trial.case,
            number=trial.number,
            run_id=item.run_id,
            report=report,
            story=run.story,
            verdicts=tuple(verdicts),
            from_before=item.from_before,
        )


async def _checked(given: EvalCheck, run: EvalRun) -> EvalVerdict:
    """A check of the program's: whatever it does, there is a verdict."""
    name = getattr(given, "__name__", type(given).__name__)
    try:
        found: Any = given(run) if is_async(given) else await in_own_thread(given, run)
        if inspect.isawaitable(found):
            found = await in_own_task(found)
    except AssertionError as error:
        return EvalVerdict(check=name, passed=False, why=first_line(error))
    except (Exception, SystemExit) as error:
        return EvalVerdict(check=name, passed=False, why=f"the check failed: {told(error)}")
    if isinstance(found, EvalVerdict):
        return found
    if found is None or isinstance(found, bool):
        return EvalVerdict(check=name, passed=found is not False, why="" if found is not False else "False")
    why = f"the check returned {shown(found)}: return True, False, None or an EvalVerdict"
    return EvalVerdict(check=name, passed=False, why=why)


def _cases(given: Iterable[EvalCase]) -> list[EvalCase]:
    found = list(listed("cases", given, "EvalCase"))
    seen: set[str] = set()
    for each in found:
        if not isinstance(each, EvalCase):
            raise TypeError(f"cases holds {shown(each)}: give EvalCase(name=…, prompt=…)")
        if each.name in seen:
            raise ConfigError(f"two cases have the name {each.name!r}", fix="each needs a name of its own")
        seen.add(each.name)
    if not found:
        raise ConfigError("there are no cases: nothing to try")
    return found


_NO_CHANGE = {"label", "metadata", "attachments", "drawn_from", "said", "client", "answering", "approve"}
"""Options of a run that do not make it another one; metadata is told apart by `map` itself."""


def _model_of_run(retinue: Retinue[Any], agent: str | AgentSpec, options: RunWith[Any]) -> ModelGiven:
    """The model that each try is given, its objects as objects; empty for that of the instance."""
    given = options.get("model")
    if given is not None:
        return given
    spec = agent if isinstance(agent, AgentSpec) else retinue.services.specs.get(agent)
    if spec is None or spec.model == "inherit":
        return str((options.get("settings") or {}).get("model", ""))
    objects = models_given(spec)
    return [objects.get(name, name) for name in spec.model.split(",")]


def _models_in(tries: Iterable[tuple[int, EvalTry]]) -> str:
    """The models that the tries really were answered by."""
    return ", ".join(
        dict.fromkeys(each.report.model for _, each in tries if each.report and each.report.model)
    )


def _digest(
    retinue: Retinue[Any],
    agent: str | AgentSpec,
    options: Mapping[str, Any],
    files: Sequence[Attachment],
) -> str:
    """What makes a try another one: the agent, those it delegates to, the model, what the run is given, and
    what is in the files that it is given."""
    specs: dict[str, AgentSpec] = {}
    todo: list[str | AgentSpec] = [agent]
    while todo:
        each = todo.pop()
        spec = each if isinstance(each, AgentSpec) else retinue.services.specs.get(each)
        if spec is None or spec.name in specs:
            continue
        specs[spec.name] = spec
        todo += retinue.services.specs if spec.tools is None else spec.tools
    given = {name: options[name] for name in sorted(options.keys() - _NO_CHANGE) if options[name]}
    known: list[Any] = [retinue.model_name, given, *(specs[name] for name in sorted(specs)), *files]
    return work_digest(*known)
