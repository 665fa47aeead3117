"""`retinue eval`: an agent tried on a file of cases, with a table of what it passed and what that cost.

Reads the file and shows the result; the evaluation itself is `retinue.testing.evaluate`.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli.map import NOT_HERE as NOT_IN_MAP
from retinue.cli.run_flags import RunFlags, with_run_flags

if TYPE_CHECKING:
    from retinue.testing.eval_file import EvalFile
    from retinue.testing.eval_result import EvalResult, EvalTry
    from retinue.testing.evaluation import EvalCheck
    from retinue.tool_files import CodePlace


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedChecks:
    """The functions, and the folders they came from."""

    functions: tuple[EvalCheck, ...]
    places: tuple[CodePlace, ...]


NOT_HERE = tuple(name for name in NOT_IN_MAP if name != "json")
"""Options of one run that say nothing of many."""


@with_run_flags(but=NOT_HERE)
def eval_(
    cases: Annotated[Path, typer.Argument(metavar="CASES", help="A file of cases: YAML or JSON.")],
    agent: Annotated[
        str, typer.Option("--agent", "-a", metavar="AGENT", help="Who is tried, instead of the file's agent.")
    ] = "",
    tries: Annotated[
        int | None, typer.Option("--tries", metavar="N", min=1, help="How often each case is tried.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-n", metavar="N", min=1, help="How many tries at once.")
    ] = 10,
    judge: Annotated[
        str, typer.Option("--judge", metavar="MODEL", help="Who judges; without it the model of the run.")
    ] = "",
    checks: Annotated[
        list[str] | None,
        typer.Option(
            "--checks", metavar="MODULE", help="Its functions check_…, called with each try. Its code runs."
        ),
    ] = None,
    pass_rate: Annotated[
        float,
        typer.Option("--pass-rate", metavar="RATE", min=0, max=1, help="How many tries must pass: 0 to 1."),
    ] = 1.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do everything anew, also what was done.")] = False,
    *,
    flags: RunFlags,
) -> int:
    """Try an agent on a file of cases, and say which it passes and what it cost.

    Started again it does only what is missing; a changed agent or another model is tried anew. Exit code 1
    says that a case did not pass. What would ask a person is refused, unless a rule or --yes allows it.

    \b
    Examples:
      retinue eval cases.yaml
      retinue eval cases.yaml --tries 3 --pass-rate 0.9 --judge openai:gpt-6.1-sol
      retinue eval cases.yaml --agent code-search --checks my_checks.py --json

    \b
    A file of cases:
      agent: code-search
      cases:
        - name: retries
          prompt: where are retries decided?
          expect:
            says: retry.py
            called: [grep, {read: {path: src/retry.py}}]
            max_cost: 0.05
            judge: The answer names one file and one function.
    """
    from retinue.errors import ConfigError
    from retinue.testing.eval_file import read_eval_file

    given = read_eval_file(cases, (flags.cwd or Path()).absolute())
    if not (agent or given.agent):
        raise ConfigError(f"{cases} names no agent", fix="write 'agent: NAME' into it, or say --agent NAME")
    loaded = _checks(checks or (), flags.cwd)
    result = asyncio.run(
        _evaluated(
            cases,
            given,
            agent or given.agent,
            loaded,
            tries=tries or given.tries or 1,
            concurrency=concurrency,
            judge=judge,
            fresh=fresh,
            flags=flags,
        )
    )
    _show(result, flags)
    return exits.OK if result.rate >= pass_rate else exits.FAILED


async def _evaluated(
    path: Path,
    given: EvalFile,
    agent: str,
    checks: LoadedChecks,
    *,
    tries: int,
    concurrency: int,
    judge: str,
    fresh: bool,
    flags: RunFlags,
) -> EvalResult:
    from retinue.cli.map_results import progress
    from retinue.cli.opening import opened_for_many
    from retinue.testing.evaluation import evaluate
    from retinue.view.paint import note

    size = len(given.cases) * tries
    async with opened_for_many(flags, checks.places) as retinue:
        retinue.agents.get(agent)
        ended: list[EvalTry] = []
        with progress(size, quiet=flags.quiet) as shown:

            def heard(tried: EvalTry) -> None:
                ended.append(tried)
                shown(len(ended), sum(not each.passed for each in ended))

            try:
                return await evaluate(
                    agent,
                    given.cases,
                    checks.functions,
                    retinue=retinue,
                    tries=tries,
                    concurrency=concurrency,
                    judge_model=judge,
                    fresh=fresh,
                    heard=heard,
                    settings=flags.settings,
                    effort=flags.effort or "",
                    drawn_from=str(path),
                )
            except (asyncio.CancelledError, KeyboardInterrupt):
                how = "--fresh begins anew, also next time" if fresh else "the same command goes on from here"
                note(f"! stopped after {len(ended)} of {size}: {how}", "yellow")
                raise


def _checks(named: tuple[str, ...] | list[str], cwd: Path | None) -> LoadedChecks:
    """The functions check_… of the modules that the person named."""
    from retinue.cli.process import loading_code
    from retinue.errors import ConfigError
    from retinue.tool_files import module_named

    found: list[EvalCheck] = []
    places: list[CodePlace] = []
    for name in named:
        with loading_code():
            module, place = module_named(name, "checks", f"--checks {name}", (cwd or Path()).absolute())
        places.append(place)
        functions: list[Any] = [
            each for key, each in vars(module).items() if key.startswith("check_") and callable(each)
        ]
        if not functions:
            raise ConfigError(
                f"{name} has no check", fix="write functions of an EvalRun whose names begin with check_"
            )
        found += functions
    return LoadedChecks(functions=tuple(found), places=tuple(places))


def _show(result: EvalResult, flags: RunFlags) -> None:
    import json

    from retinue.view.paint import columns, note, out_json, put

    if flags.json:
        out_json(json.dumps(result.to_dict(), ensure_ascii=False))
        return
    put(result.lines(columns(sys.stdout) if sys.stdout.isatty() else None), sys.stdout)
    if not result.passed and not flags.quiet:
        failed = next(each for each in result.tries if not each.passed)
        note(f"'retinue runs show {failed.run_id}' tells what was done in the first that failed", "yellow")
