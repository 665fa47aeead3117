"""The end of a run: the answer, and below it what it rests on and what it took.

The answer goes to stdout, as Markdown rendered for a terminal and as it is for everyone else; the summary
goes to stderr.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from retinue.story import Story
from retinue.story_nodes import Call, Node
from retinue.types import Outcome, Report, Source, Verdict
from retinue.view import words
from retinue.view.commands import command
from retinue.view.marked import marked_text
from retinue.view.paint import Line, cells, columns, is_screen, out_json, put, wants_colour, wrap
from retinue.view.picture import MARKS
from retinue.workspace import HOME

MOST_SOURCES = 12
MOST_FILES = 20


def print_answer(report: Report) -> None:
    """The answer on stdout."""
    text = words.clean(marked_text(report) if is_screen(sys.stdout) else report.text)
    if not text.strip():
        return
    if not is_screen(sys.stdout):
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    elif report.format == "json":
        sys.stdout.write(_pretty(text) + "\n")
    else:
        _render(text)
    sys.stdout.flush()


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _render(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(
        file=sys.stdout, width=min(columns(sys.stdout), 110), no_color=not wants_colour(sys.stdout)
    )
    # Links are written out: what a link shows and where it leads can differ.
    console.print(Markdown(text, hyperlinks=False, code_theme="ansi_dark", justify="left"))


def summary(
    report: Report,
    tree: Story | None = None,
    *,
    claims: bool = False,
    shown: bool = False,
    goes_on: bool = True,
) -> list[Line]:
    """Sources, claims, files, what is missing, and one line of figures. `shown`: its transcript is above;
    `goes_on`: how to go on with it by a command."""
    width = columns(sys.stderr)
    lines: list[Line] = []
    for source in report.sources[:MOST_SOURCES]:
        lines.append(_source(source))
    if len(report.sources) > MOST_SOURCES:
        more = words.count(len(report.sources) - MOST_SOURCES, "more source")
        lines.append([(f"  … {more}: {command(f'runs show {report.run_id}')}", "dim")])
    lines += claim_lines(report, width, each=claims)
    lines += problem_lines(report, width)
    # What lies in the run's own home ended with it: only what is still there is worth naming.
    gone = tree.undone if tree is not None else ()
    there = [file for file in report.files if not file.startswith(f"{HOME}/") and file not in gone]
    if there:
        lines += [[(text, "dim")] for text in wrap(f"files: {_named(there, report.run_id)}", width)]
    node = tree.nodes.get(report.run_id) if tree is not None else None
    lines += _missing(report, node, width, report.run_id if shown else "")
    for each in node.walk() if node is not None else ():
        lines += [line for call in each.unknown for line in _unknown(each, call, width)]
    if goes_on and (told := _going_on(report, node)):
        lines += _wrapped(told, "dim", width)
    return [*lines, *_figures(report, report.outcome if node is None else node.outcome, width)]


def _named(files: Sequence[str], run_id: str) -> str:
    """Some of the files that were changed, and where the rest is named."""
    some = ", ".join(words.one_line(file) for file in files[:MOST_FILES])
    more = len(files) - MOST_FILES
    return some if more <= 0 else f"{some} and {more} more: {command(f'runs diff {run_id} --stat')}"


def _going_on(report: Report, node: Node | None) -> str:
    """How a run goes on that failed, was stopped or met a limit; empty if it has nothing to go on with."""
    ended, run_id, more, what = report.ended_by, report.run_id, "", "go on with"
    if report.status == "completed" and ended not in ("max_turns", "budget", "time"):
        return ""
    if report.depth > 1:
        while node is not None and node.parent is not None and node.parent.parent is not None:
            node = node.parent  # a person speaks to the root and to its own children
        run_id, more = node.run_id if node is not None else run_id, " --message TEXT"
    elif ended == "max_turns":
        more = " --max-turns N"
    elif report.depth:
        more = " --message TEXT"  # a child goes on when it is asked again
    elif ended == "budget":
        what = "once that is set right, go on with"
    elif node is not None and node.failure_kind == "not_found":  # the same model would be missing again
        more = " --model PROVIDER:MODEL"
    return f"  {what}: {command(f'runs resume {run_id}{more}')}"


def problem_lines(report: Report, width: int) -> list[Line]:
    """What is wrong with citations and quotations, but for what stands beside a source already."""
    found = report.problems[report.problems_of_sources :]
    lines = [line for problem in found[:MOST_SOURCES] for line in _wrapped(f"✗ {problem}", "red", width)]
    if len(found) > MOST_SOURCES:
        lines.append([(f"  … {words.count(len(found) - MOST_SOURCES, 'more problem')}", "dim")])
    return lines


VERDICTS: dict[Verdict, tuple[str, str, str]] = {
    "supported": ("✓", "green", "supported"),
    "contradicted": ("✗", "red", "contradicted"),
    "not_found": ("?", "yellow", "not found"),
    "unchecked": ("·", "dim", "not checked"),
}


def claim_lines(report: Report, width: int, *, each: bool) -> list[Line]:
    """How many of the cited sentences their sources support; with `each` one by one, with the passage."""
    if not report.claims and not (each and report.uncited):
        return []
    counts = Counter(claim.verdict for claim in report.claims)
    told = [f"{counts[verdict]} {name}" for verdict, (_, _, name) in VERDICTS.items() if counts[verdict]]
    told += [f"{words.count(report.uncited, 'sentence')} without a source"] if report.uncited else []
    lines: list[Line] = [[(f"claims: {' · '.join(told)}", "dim")]]
    for claim in report.claims if each else ():
        mark, style, _ = VERDICTS[claim.verdict]
        by = f"  (judged by {claim.judged})" if claim.judged else ""
        lines += _wrapped(f"{mark} {words.one_line(claim.text, 300)}{by}", style, width)
        if claim.passage:
            lines += _wrapped(f"    {claim.source}: “{words.one_line(claim.passage, 300)}”", "dim", width)
        for one in claim.differences:
            there = f"; there: {words.one_line(one.source, 100)}" if one.source else ", which is not there"
            lines += _wrapped(f"    {one.kind}: {words.one_line(one.claim, 100)}{there}", style, width)
    return lines


def _source(source: Source) -> Line:
    where = words.one_line(source.url or source.path or "?", 300)
    if source.lines is not None and source.url is None:
        first, last = source.lines
        where += f":{first}" if first == last else f":{first}-{last}"
    line: Line = [("✓ " if source.verified else "✗ ", "green" if source.verified else "red"), (where, "dim")]
    if not source.verified:
        line.append((f"  not verified: {words.one_line(source.note or 'never read')}", "red"))
    elif source.title and source.url is not None:
        line.append((f"  {words.one_line(source.title, 80)}", "dim"))
    return line


def _run_with(node: Node | None, report: Report, name: str) -> str:
    """The run, here or below, whose own log tells of it."""
    while node is not None:
        below = next((child for child in node.children if getattr(child.shortfall, name)), None)
        if below is None:
            return node.run_id
        node = below
    return report.run_id


def _missing(report: Report, node: Node | None, width: int, above: str) -> list[Line]:
    lacks = report.shortfall if node is None else node.shortfall
    lines: list[Line] = []
    if report.status == "error":
        mark, style = MARKS[report.outcome]
        lines += _wrapped(f"{mark} {report.error or 'the run failed'}", style, width)
    elif report.status == "cancelled":
        lines += _wrapped(
            f"■ cancelled: {report.incomplete or report.error or ''}".rstrip(": "), "yellow", width
        )
    elif report.incomplete:
        why = report.incomplete + (", and one more for this report" if report.ended_by == "max_turns" else "")
        lines += _wrapped(f"! incomplete: {why}", "yellow", width)
    if lacks.rejected:
        text = f"✗ {words.count(lacks.rejected, 'call')} rejected; which one says: "
        lines += _wrapped(text + _show(_run_with(node, report, "rejected"), above), "yellow", width)
    if lacks.denied:
        text = f"! {words.count(lacks.denied, 'call')} denied by a rule; which one says: "
        where = _run_with(node, report, "denied")
        lines += _wrapped(f"{text}{_show(where, above)}", "yellow", width)
    if lacks.refused:
        text = f"! {words.count(lacks.refused, 'call')} refused, since nobody could approve; see --yes, "
        lines += _wrapped(text + "--wait-approvals, or 'allow' under [approvals]", "yellow", width)
    if lacks.not_started:
        number, where = (
            words.count(lacks.not_started, "child", "children"),
            _run_with(node, report, "not_started"),
        )
        lines += _wrapped(f"! {number} not started; why says: {_show(where, above)}", "yellow", width)
    unmade = [each.run_id for each in (node.walk() if node is not None else ()) for _ in each.unmerged]
    if unmade:
        number = words.count(len(unmade), "merge")
        lines += _wrapped(f"! {number} not made; why says: {_show(unmade[0], above)}", "yellow", width)
    for name, count in (("failed", lacks.failed), ("incomplete", lacks.incomplete - len(unmade))):
        if count > 0:
            number, where = words.count(count, "child", "children"), _run_with(node, report, name)
            lines += _wrapped(f"! {number} {name}; which says: {_show(where, above)}", "yellow", width)
    return lines


def _show(run_id: str, above: str) -> str:
    """Where to look: a run whose transcript stands above has told it."""
    if run_id == above:
        return "the transcript above"
    return command(f"runs show {run_id}")


def _unknown(node: Node, call: Call, width: int) -> list[Line]:
    """A call that was cut off: its model was told so, and answers for what it made of that."""
    about = words.arguments(call.arguments)
    who = f" of {node.agent}" if node.parent is not None else ""
    what = f"{call.name}{f' ({words.one_line(about, 80)})' if about else ''}{who}"
    return _wrapped(f"! {what} was cut off while it ran: what it did is not known", "yellow", width)


def _wrapped(text: str, style: str, width: int) -> list[Line]:
    return [[(piece, style)] for piece in wrap(words.clean(text), width)]


def _figures(report: Report, shown: Outcome, width: int) -> list[Line]:
    usage = report.usage
    mark, style = MARKS[shown]
    facts = [
        words.count(report.turns, "turn"),
        words.calls(report.tool_calls, report.failed_calls),
        f"{words.tokens(usage.total_tokens)} tokens"
        + (
            f" ({words.tokens(usage.input_tokens)} in, {words.tokens(usage.output_tokens)} out)"
            if width >= 80
            else ""
        ),
        words.money(usage.cost),
        words.duration(report.duration_ms / 1000),
    ]
    about = ", ".join(filter(None, (report.model, words.effort(report.effort))))
    who = f"{report.agent} ({about})" if about else report.agent
    lines = [who]
    for fact in (*facts, f"run {report.run_id}"):
        if cells(lines[-1]) + cells(fact) + 5 > width:
            lines.append(fact)
        else:
            lines[-1] += f" · {fact}"
    return [[(f"{mark} " if index == 0 else "  ", style), (text, "dim")] for index, text in enumerate(lines)]


def print_summary(
    report: Report, tree: Story | None = None, *, claims: bool = False, shown: bool = False
) -> None:
    blank: list[Line] = [[("", "")]] if report.text.strip() and is_screen(sys.stdout) else []
    put(blank + summary(report, tree, claims=claims, shown=shown), sys.stderr)


def print_report_json(report: Report, **more: Any) -> None:
    """`more` is what is known of the run beside its report."""
    indent = 2 if sys.stdout.isatty() else None
    out_json(json.dumps({**report.to_dict(), **more}, ensure_ascii=False, indent=indent))
