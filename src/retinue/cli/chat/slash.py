"""The commands of a chat: `/help` and its like. One table: a new one is a function and a line in it."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

from retinue.cli.chat.pasting import Entered
from retinue.errors import ConfigError
from retinue.types import Level
from retinue.view import words
from retinue.view.paint import Line, columns
from retinue.view.picture import MARKS

if TYPE_CHECKING:
    from retinue.cli.chat.talk import Talk
    from retinue.story_nodes import Node

T = TypeVar("T")
Work = Callable[["Talk", Entered], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Slash:
    name: str
    takes: str
    says: str
    work: Work
    waits: bool = False
    """Whether it moves the conversation: it waits for a message that is on its way there."""


async def run_slash(talk: Talk, line: Entered) -> None:
    name = line.split(maxsplit=1)[0][1:]
    found = {each.name: each for each in SLASHES}.get(name)
    if found is None:
        near = difflib.get_close_matches(name, [each.name for each in SLASHES], n=1)
        meant = f": did you mean /{near[0]}?" if near else ""
        raise ConfigError(f"there is no command /{name}{meant}", fix="/help lists them")
    async with talk.turn if found.waits else contextlib.nullcontext():
        await found.work(talk, line.after_word())


async def _help(talk: Talk, rest: str) -> None:
    width = max(len(f"/{each.name} {each.takes}") for each in SLASHES)
    talk.tell(*(f"{f'/{each.name} {each.takes}':{width}}  {each.says}" for each in SLASHES))
    talk.tell(
        "",
        "@path attaches a file · @agent … has that agent do it · !command runs it in your shell",
        "Enter sends; while it works, it reads your message before its next step",
        "Alt-Enter, Ctrl-J or \\ at the end: a new line · Ctrl-X Ctrl-E: your editor",
        "Esc stops the turn and keeps what was found · Ctrl-O opens a question · Ctrl-D leaves",
        style="dim",
    )


async def _new(talk: Talk, rest: str) -> None:
    left = talk.session.left_at_work
    talk.session.new()
    talk.tell("a new conversation; the last one is in /resume", style="dim")
    if left:
        talk.tell("there, those whom it asked are still at work: /resume 1 shows what they find", style="dim")


async def _quit(talk: Talk, rest: str) -> None:
    talk.stage.leave(0)


async def _model(talk: Talk, rest: str) -> None:
    session = talk.session
    if not rest:
        talk.tell(f"{session.model or session.retinue.model_name}", "/model PROVIDER:NAME takes another one")
        return
    rest = session.retinue.model_known(rest)
    session.model = rest
    when = "when this answer is there, and you say something" if talk.busy else "from your next message on"
    talk.tell(f"{when}: {rest}", style="dim")


async def _effort(talk: Talk, rest: str) -> None:
    session = talk.session
    levels: tuple[Level, ...] = get_args(Level)
    if rest not in levels:
        raise ConfigError(
            f"effort is {session.effort or 'as the agent says'}", fix=f"/effort {'|'.join(levels)}"
        )
    session.effort = rest
    if session.run_id:
        talk.tell(f"holds from the next conversation on (/new): {rest}", style="dim")
    else:
        talk.tell(f"effort: {rest}", style="dim")


async def _agent(talk: Talk, rest: str) -> None:
    session = talk.session
    if not rest:
        found = session.retinue.agents.agents
        talk.tell(
            *(f"{name:20} {words.one_line(found[name].spec.description, 100)}" for name in sorted(found))
        )
        talk.tell("/agent NAME talks to that one, in a new conversation", style="dim")
        return
    session.retinue.agents.get(rest)
    session.new()
    session.agent = rest
    talk.tell(f"a new conversation, with {rest}", style="dim")


async def _agents(talk: Talk, rest: str) -> None:
    """The children of this conversation: listed, opened, told something, stopped."""
    children = talk.session.children()
    number, _, what = rest.partition(" ")
    if not rest:
        if not children:
            talk.tell("nobody was asked for help yet", style="dim")
        talk.stage.lines([_child_line(index, node) for index, node in enumerate(children, 1)])
        if children:
            talk.tell("/agents N opens one · /agents N stop · /agents N TEXT tells it something", style="dim")
        return
    node = _picked(children, number, "child", "/agents lists them")
    retinue = talk.session.retinue
    if not what:
        await _open(talk, node)
    elif what == "stop":
        stopped = await retinue.cancel(node.run_id, "stopped by the person")
        talk.tell(f"{node.agent} is stopped" if stopped else f"{node.agent} had ended", style="dim")
    elif await talk.session.ask_child(node, what):
        talk.tell(f"{node.agent} is asked again", style="dim")
    else:
        talk.tell(f"{node.agent} reads it before its next step", style="dim")


def _child_line(index: int, node: Node) -> Line:
    mark, style = MARKS[node.outcome]
    about = words.one_line(node.label or node.task, 80)
    deep = "  " * max(0, _depth(node) - 1)
    return [(f"  {index:3} ", "dim"), (f"{deep}{mark} ", style), (node.agent, "bold"), (f"  {about}", "")]


def _depth(node: Node) -> int:
    return 0 if node.parent is None else 1 + _depth(node.parent)


async def _open(talk: Talk, node: Node) -> None:
    from retinue.view.transcript import Transcript

    events = await talk.session.retinue.store.events(talk.session.run_id, run_id=node.run_id)
    script = Transcript(width=columns(), tree=talk.session.story)
    talk.stage.lines(script.of(events))
    if node.report is not None:
        talk.tell(*node.report.text.splitlines())


async def _cost(talk: Talk, rest: str) -> None:
    root = talk.session.root
    if root is None:
        talk.tell("nothing was asked yet", style="dim")
        return
    for node in root.walk():
        usage = node.usage
        cost = (
            words.money(usage.cost) if usage.cost else "no price known" if usage.total_tokens else "nothing"
        )
        own = "all of it" if node is root else words.one_line(node.label or node.task, 60)
        talk.tell(f"{node.agent:18} {words.tokens(usage.total_tokens):>8} tokens  {cost:>16}  {own}")


async def _context(talk: Talk, rest: str) -> None:
    sent, most = talk.view.last_sent, talk.session.retinue.settings.context.max_tokens
    if not sent:
        talk.tell("nothing was asked yet", style="dim")
        return
    talk.tell(f"the last request had {sent:,} tokens; the history may take {most:,} (context.max_tokens)")
    if talk.session.run_id:
        for section in await talk.session.retinue.sections(talk.session.run_id):
            talk.tell(f"  {section.title}: about {section.tokens:,} tokens", style="dim")


async def _compact(talk: Talk, rest: str) -> None:
    talk.session.compact()
    talk.tell("with your next message, old turns are dropped; what was found in them is kept in few words")


async def _attach(talk: Talk, rest: str) -> None:
    carrying = talk.carrying
    word, _, number = rest.partition(" ")
    if not rest:
        talk.tell(*(f"{i:3} {name}" for i, name in enumerate(carrying.names(), 1)))
        more = " · /attach drop [N] takes back" if carrying.things else ""
        talk.tell(f"/attach PATH: goes along with your next message{more}", style="dim")
    elif word == "drop":
        if number:
            _picked(carrying.things, number, "attachment", "/attach lists them")
        dropped = [carrying.drop(int(number))] if number else [carrying.drop(1) for _ in carrying.names()]
        talk.tell(*(f"{name} is no longer attached" for name in dropped), style="dim")
    else:
        await talk.attach(_path(talk, rest))


async def _diff(talk: Talk, rest: str) -> None:
    from retinue.view import changes as view
    from retinue.view.question import diff_style

    if not talk.session.run_id:
        talk.tell("nothing was changed", style="dim")
        return
    found, content = await talk.session.retinue.changes.of(talk.session.run_id)
    shown = view.shown_changes([(each.path, each.before, each.after) for each in found.changes], content)
    patch = view.as_patch(shown).rstrip("\n") if shown else ""
    talk.stage.lines([[(line, diff_style(line))] for line in words.clean(patch).splitlines()])
    talk.tell(
        view.summed(shown) if shown else "this conversation changed nothing that is recorded", style="dim"
    )


async def _undo(talk: Talk, rest: str) -> None:
    if not talk.session.run_id:
        raise ConfigError("nothing was changed yet")
    changes = talk.session.retinue.changes
    planned = await changes.undo(talk.session.run_id, dry_run=True)
    if planned.refused and rest != "rest":
        talk.tell(*(f"{path}: {why}" for path, why in planned.refused), style="yellow")
        if not planned.paths:
            raise ConfigError("nothing was touched, and there is no more to take back")
        raise ConfigError("nothing was touched", fix="/undo rest takes back the others")
    done = await changes.undo(talk.session.run_id, rest=rest == "rest")
    talk.tell(*(f"{path}: as before" for path in done.paths))
    talk.tell(*(f"cannot be taken back: {line}" for line in done.left_out), style="yellow")
    talk.tell(f"{words.count(len(done.paths), 'path')} taken back", style="dim")


async def _rewind(talk: Talk, rest: Entered) -> None:
    number = next(iter(rest.split(maxsplit=1)), "")
    if not number or not talk.told or talk.told[0].run_id != talk.session.run_id:
        talk.told = await talk.session.said()
    if not number:
        talk.tell(*(f"{i:3} {words.one_line(said.text, 100)}" for i, said in enumerate(talk.told, 1)))
        talk.tell("/rewind N TEXT says that in its place; /undo takes back changed files", style="dim")
        return
    said = _picked(talk.told, number, "message", "/rewind lists them")
    text = rest.after_word()
    if not text:
        raise ConfigError(
            f"say what is to stand there instead of {words.one_line(said.text, 60)!r}", fix="/rewind N TEXT"
        )
    await talk.rewind(int(number), said, text)


async def _resume(talk: Talk, rest: str) -> None:
    if not rest:
        talk.listed = await talk.session.earlier()
        for index, row in enumerate(talk.listed, 1):
            mark, style = MARKS[row.outcome]
            about = words.one_line(row.label or row.task, 80)
            line: Line = [
                (f"  {index:3} ", "dim"),
                (f"{mark} ", style),
                (about, ""),
                (f"  {row.run_id}", "dim"),
            ]
            talk.stage.lines([line])
        talk.tell(
            "/resume N goes on with one" if talk.listed else "there are none in this folder", style="dim"
        )
        return
    if rest.isdigit() and int(rest) <= 200:
        talk.listed = talk.listed or await talk.session.earlier()
        row = _picked(talk.listed, rest, "conversation", "/resume lists them")
    else:
        from retinue.cli.opening import find_run

        row = await find_run(talk.session.retinue, rest)
    await talk.session.take_up(row, talk.view.past)


async def _rename(talk: Talk, rest: str) -> None:
    session = talk.session
    if not session.run_id:
        raise ConfigError("there is nothing to name yet", fix="say something first")
    if not rest:
        root = session.root
        talk.tell(root.label if root is not None and root.label else "it has no name: /rename NAME")
        return
    await session.retinue.rename(session.run_id, rest)
    talk.tell(f"in lists it is now: {words.one_line(rest, 200)}", style="dim")


async def _export(talk: Talk, rest: str) -> None:
    from retinue.cli.exporting import exported, write_new

    if not talk.session.run_id:
        raise ConfigError("there is nothing to export yet")
    path, retinue = _path(talk, rest or f"{talk.session.run_id}.html"), talk.session.retinue
    events = await retinue.store.events(talk.session.run_id)

    def write() -> None:
        data = exported(events, html=path.suffix in (".html", ".htm"), secrets=retinue.secrets())
        write_new(path, data, project=retinue.cwd)

    await asyncio.to_thread(write)
    talk.tell(f"written to {path}", style="dim")


async def _plan(talk: Talk, rest: str) -> None:
    on = not talk.session.planning if rest not in ("on", "off") else rest == "on"
    talk.session.plan(on)
    said = (
        "from your next message on it only reads: ask for a plan, then /plan off"
        if on
        else "it may change things again, and asks first"
    )
    talk.tell(said, style="dim")


async def _skills(talk: Talk, rest: str) -> None:
    found = talk.session.retinue.services.skill_files.catalogue.skills
    talk.tell(*(f"{skill.name:24} {words.one_line(skill.description, 100)}" for skill in found.values()))
    if not found:
        talk.tell("there are none: a skill is a folder with a SKILL.md in .agents/skills", style="dim")


async def _mcp(talk: Talk, rest: str) -> None:
    known = talk.session.retinue.services.mcp
    for name in sorted(known.servers):
        talk.tell(f"{name:24} {'usable' if name in known.usable else 'waits: retinue mcp trust'}")
    if not known.servers:
        talk.tell("there are none: 'retinue mcp add' adds one", style="dim")


def _path(talk: Talk, text: str) -> Path:
    return talk.session.retinue.cwd / Path(text).expanduser()


def _picked(items: Sequence[T], number: str, what: str, fix: str) -> T:
    if not number.isdigit() or not 0 < int(number) <= len(items):
        raise ConfigError(f"there is no {what} {number!r}: there are {len(items)}", fix=fix)
    return items[int(number) - 1]


SLASHES = (
    Slash(name="help", takes="", says="what can be typed here", work=_help),
    Slash(name="new", takes="", says="begin another conversation", work=_new, waits=True),
    Slash(
        name="resume",
        takes="[N|ID]",
        says="go on with an earlier conversation of this folder",
        work=_resume,
        waits=True,
    ),
    Slash(
        name="rewind",
        takes="[N TEXT]",
        says="say something else in place of an earlier message",
        work=_rewind,
    ),
    Slash(
        name="agent",
        takes="[NAME]",
        says="the agents there are; talk to another one",
        work=_agent,
        waits=True,
    ),
    Slash(
        name="agents",
        takes="[N [stop|TEXT]]",
        says="who was asked for help: open, tell, stop",
        work=_agents,
        waits=True,
    ),
    Slash(name="model", takes="[NAME]", says="which model answers", work=_model),
    Slash(name="effort", takes="LEVEL", says="how hard it is asked to think", work=_effort),
    Slash(name="plan", takes="[on|off]", says="only read, and make a plan", work=_plan, waits=True),
    Slash(
        name="attach",
        takes="[PATH|drop [N]]",
        says="a file that goes along with your next message",
        work=_attach,
    ),
    Slash(name="diff", takes="", says="what this conversation changed in the project", work=_diff),
    Slash(name="undo", takes="[rest]", says="take that back", work=_undo, waits=True),
    Slash(name="cost", takes="", says="tokens and money, run by run", work=_cost),
    Slash(name="context", takes="", says="how full the context of the model is", work=_context),
    Slash(name="compact", takes="", says="make room in it", work=_compact, waits=True),
    Slash(name="skills", takes="", says="the skills there are", work=_skills),
    Slash(name="mcp", takes="", says="the MCP servers there are", work=_mcp),
    Slash(name="rename", takes="[NAME]", says="what this conversation is called in lists", work=_rename),
    Slash(
        name="export",
        takes="[FILE]",
        says="write it down: a page (.html), or events as lines of JSON",
        work=_export,
    ),
    Slash(name="quit", takes="", says="leave; Ctrl-D does too", work=_quit),
)
