"""Which part of a command the allow rules do not mean: told to whoever is asked about it.

Called by `approvals`, for a command that is asked about although there are rules for commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retinue.authority.shell import programs
from retinue.authority.shell.allow import Compound, Pattern, anywhere, compiled, pipeline_by, unmeant
from retinue.authority.shell.moving import Enters, entered, mover
from retinue.authority.shell.plain import Plain, Simple
from retinue.authority.shell.reading import plainly, read
from retinue.types import Uncovered

MOST = 200
"""Characters of a part that are told."""


def uncovered(command: str, patterns: Sequence[str], enters: Enters | None = None) -> Uncovered:
    """The first part of a command that `allow.covers` found no pattern for; `rule` is then a pattern."""
    plain = plainly(command)
    if plain is None:
        return Uncovered(why=read(command).why)
    rules = {pattern: found for pattern in patterns if (found := compiled(pattern)) is not None}
    cd, where = entered(plain, enters)
    moves = [simple for simple in plain.commands if programs.moves(mover(simple))]
    if where != "." and moves and not programs.may_move([mover(simple) for simple in plain.commands]):
        return Uncovered(part=_text(command, moves[0]))
    found = _first(plain, rules if where in (None, ".") else anywhere(rules), cd)
    if found is not None and _first(plain, rules, cd) != found:
        found = cd  # a rule means the command, and not in this folder
    return _near(command, found or plain.commands[0], rules)


def _first(plain: Plain, rules: Mapping[str, Compound], passed: Simple | None) -> Simple | None:
    for pipeline in plain.pipelines:
        if pipeline != (passed,) and pipeline_by(pipeline, rules) is None:
            return next(simple for simple in pipeline if pipeline_by((simple,), rules) is None)
    return None


def _near(command: str, simple: Simple, rules: Mapping[str, Compound]) -> Uncovered:
    """A command that no rule means, and the rule that would but for one word."""
    for text, pattern in _single(rules):
        if word := unmeant(pattern, simple, fed=simple.piped):
            return Uncovered(part=_text(command, simple), word=word[:MOST], rule=text)
    return Uncovered(part=_text(command, simple))


def _single(rules: Mapping[str, Compound]) -> list[tuple[str, Pattern]]:
    return [
        (text, rule.pipelines[0][0])
        for text, rule in rules.items()
        if len(rule.pipelines) == 1 and len(rule.pipelines[0]) == 1
    ]


def _text(command: str, simple: Simple) -> str:
    written = command[simple.spans[0][0] : simple.spans[-1][1]]
    return " ".join((*simple.assignments, written))[:MOST]
