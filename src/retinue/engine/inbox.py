"""The inbox of a workflow: where calls wait for a person, and where signals arrive.

A question is an event in the log of the run that asks; an answer is a signal, whoever sends it: the
terminal, the page, another process. The first signal wins. While a run waits, its clock and those of its
ancestors stand still, it holds no slot, and its siblings go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, get_args

import msgspec
from msgspec import Struct

from retinue.approvals import Asked, Verdict, parse_rule, suggest_rule
from retinue.authority.flows import Concern, Passage
from retinue.clock import say
from retinue.engine.bring import bring
from retinue.engine.concern import is_withheld, passage_of
from retinue.engine.isolation import MERGE
from retinue.engine.preview import preview_of
from retinue.engine.reviewer import clears, may_clear
from retinue.engine.tree import RunTree
from retinue.errors import ConfigError, Refused, StoreError, ToolError
from retinue.events import AccessDenied, ApprovalAnswered, ApprovalRequested, Decision, MessageReceived, now
from retinue.fold import Grant, grant_of
from retinue.reading import real_path
from retinue.run import Admitted, Run
from retinue.store.base import Signal
from retinue.store.rows import fenced
from retinue.toolcall import asked_of
from retinue.tools.base import Tool, parse_object
from retinue.types import ToolCall

log = logging.getLogger("retinue.engine")

SOON, LATEST = 0.1, 5.0
"""Seconds until signals are read again that could not be read, since the store failed: at first, at most."""


FAILED_FUNCTION = "the approve function"
"""Who an answer is by that a program's function could not give: no person said no."""
MEANWHILE = "approved for the rest of the run while it was being asked"
NOBODY = "nobody"
"""Who answers a question that no one answered in time."""


class Answer(Struct, frozen=True, kw_only=True):
    """What a person said. `arguments` are edited ones, as JSON."""

    decision: Decision
    reason: str = ""
    arguments: str | None = None
    by: str = "person"
    along_with: str = ""
    """The question whose answer is for this one too."""


def checked(answer: Answer) -> Answer:
    """The same answer if it is one: a program, or another process, may have put anything into it."""
    try:
        answer = msgspec.convert(msgspec.to_builtins(answer), Answer)
        if answer.arguments is not None:
            if not answer.arguments.strip():
                raise ToolError("the arguments are not valid JSON: they are empty")
            parse_object(answer.arguments)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"this is no answer: {error}", fix=_ANSWERS) from None
    except ToolError as error:
        raise ConfigError(f"the edited arguments cannot be used: {error}", fix=_ANSWERS) from None
    return answer


_ANSWERS = (
    f"decision is one of {', '.join(get_args(Decision))}; "
    "reason and by are text; arguments are JSON text or None"
)


class Inbox:
    """What arrives for the runs of a tree, and the calls that wait for it."""

    def __init__(self, tree: RunTree) -> None:
        self.tree = tree
        self.granted: set[Grant] = set()
        self._questions: dict[str, tuple[Asked, Verdict, Concern | None]] = {}
        """What people are being asked, by the question."""
        self._asking: dict[str, tuple[str, ...]] = {}
        """What people are being asked about for the whole workflow, by the question: others wait for it."""
        self._settled = asyncio.Event()
        self._open: dict[str, asyncio.Future[Answer]] = {}
        self._early: dict[str, Answer] = {}
        self._messages: dict[str, list[tuple[str, str]]] = {}
        """Said to runs that are not begun or taken up yet, with their keys."""
        self._cancels: dict[str, tuple[str, str]] = {}
        self._last = 0
        self._tasks: set[asyncio.Future[None]] = set()
        self.ask_for_people: Callable[[Run], Awaitable[None]] = _nobody
        """Asks the children again that people asked, by the log of the run that started them."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self, *, old: int = 0, ended: frozenset[str] = frozenset()) -> None:
        """Begin to read signals, those first that came while nothing ran.

        A cancel up to the signal `old` is what the run is resumed from, and who said something to a run that
        had `ended` was told that it was too late.
        """
        unsubscribe = self.tree.config.store.subscribe(self.tree.root_id, self._wake.set, signals=True)
        await self._read(old, ended)
        self._task = asyncio.create_task(self._watch(unsubscribe), name=f"signals {self.tree.root_id}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _watch(self, unsubscribe: Callable[[], None]) -> None:
        delay = SOON
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    await self._read()
                    await self._look()
                except (StoreError, MemoryError) as error:
                    # What woke us is still unread, and nothing may come after it.
                    log.warning("%s: signals cannot be read yet: %s", self.tree.root_id, error)
                    await asyncio.sleep(delay)
                    delay = min(2 * delay, LATEST)
                    self._wake.set()
                else:
                    delay = SOON
        finally:
            unsubscribe()

    async def _read(self, old: int = 0, ended: frozenset[str] = frozenset()) -> None:
        for signal in await self.tree.config.store.signals(self.tree.root_id, after=self._last):
            late = signal.kind == "cancel" or (signal.kind == "message" and signal.run_id in ended)
            if signal.id > old or not late:
                try:
                    self._take(signal)
                except MemoryError:
                    raise  # read again when there is some
                except Exception as error:  # signals come from other processes: one must not stop the rest
                    log.warning("%s: a signal cannot be read: %s", signal.key, error)
            self._last = signal.id

    def _take(self, signal: Signal) -> None:
        if signal.kind == "answer":
            self.tell(signal.key, _answer_in(signal))
            return
        body: dict[str, Any] = json.loads(signal.body)
        if signal.kind == "cancel":
            self.cancel(signal.run_id, body.get("reason") or "cancelled", by=body.get("by", "person"))
        else:
            self._deliver(signal.run_id, body["text"], signal.key)

    def cancel(self, run_id: str, reason: str, *, by: str) -> None:
        """Stop a run and everything below it: now, or as soon as it is there."""
        if run_id in self.tree.live:
            self.tree.cancel(run_id, reason, by=by)
        else:
            self._cancels[run_id] = (reason, by)

    def _deliver(self, run_id: str, text: str, message_id: str) -> None:
        live = self.tree.live.get(run_id)
        if self.tree.has_ended(run_id):
            self._ask_again(run_id, text, message_id)
        elif live is None:
            self._messages.setdefault(run_id, []).append((text, message_id))
        elif not live.over and message_id not in live.run.state.seen_messages:
            live.run.log.write(MessageReceived, text=text, sender="person", message_id=message_id)
            self.tree.spoken_to(run_id)
            if live.run.depth == 0:
                live.run.budget.renew()
                live.run.clock.renew()
            bring(live.run, self.tree)

    def _ask_again(self, run_id: str, text: str, message_id: str) -> None:
        """A child that has ended is asked again by a person, if the run that started it is still at work."""
        state = self.tree.state(run_id)
        parent = self.tree.live.get(state.started.parent_id or "") if state and state.started else None
        if parent is None or parent.over or message_id in parent.run.state.seen_messages:
            return
        if run_id in self.tree.continuing or any(
            one.asks == run_id for one in parent.run.state.asks.values()
        ):
            self._messages.setdefault(run_id, []).append((text, message_id))  # it reads that as it works
            return
        said = {"text": text, "sender": "person", "message_id": message_id, "asks": run_id}
        parent.run.log.write(MessageReceived, **said)
        self.tree.spoken_to(parent.run.id)
        if parent.run.depth == 0:
            parent.run.budget.renew()
            parent.run.clock.renew()
        task = asyncio.ensure_future(self.ask_for_people(parent.run))
        self._tasks.add(task)
        task.add_done_callback(self._asked)

    def deliver_again(self, run_id: str) -> None:
        """A child could not be asked again: what was said to it meanwhile has nobody to read it."""
        for text, message_id in self._messages.pop(run_id, []):
            self._deliver(run_id, text, message_id)

    def _asked(self, task: asyncio.Future[None]) -> None:
        """Whoever lingers for its background children has one more, or was told why not."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: a child could not be asked again: %s", self.tree.root_id, error)

    def hand_over(self, run_id: str) -> None:
        """A run is there now: what came for it before is its own."""
        for text, message_id in self._messages.pop(run_id, ()):
            self._deliver(run_id, text, message_id)
        if run_id in self._cancels:
            reason, by = self._cancels.pop(run_id)
            self.tree.cancel(run_id, reason, by=by)

    async def _look(self) -> None:
        """Another process has written here. If it was to the root's log, that one is its owner now."""
        root_id = self.tree.root_id
        root = self.tree.live.get(root_id)
        if root is None or root.task.done():
            return
        last = await self.tree.config.store.tail(root_id, limit=1, run_id=root_id)
        if last and last[0].seq > root.run.state.seq:
            self.tree.give_up(fenced(root_id, last[0].seq))

    def tell(self, approval_id: str, answer: Answer) -> None:
        """Hand an answer to the call that waits for it, or keep it for the one that will."""
        waiting = self._open.pop(approval_id, None)
        if waiting is None or waiting.done():
            self._early[approval_id] = answer
        else:
            waiting.set_result(answer)

    def judge(self, run: Run, tool: Tool, arguments: dict[str, Any], composed: bool = False) -> Verdict:
        """What the rules say; what a person approved for the rest of the run needs no more asking."""
        asked = asked_of(run, tool, arguments)
        verdict = run.authority.rules.judge(asked)
        concern = passage_of(run, tool, asked, self.tree.states()).concern if composed else None
        if concern is not None and verdict.action != "deny":
            return Verdict(action="ask", why=concern.why)
        if verdict.action == "ask" and any(_covers(grant, asked, verdict) for grant in self.granted):
            return Verdict(action="allow", why="a person approved it for this run")
        if self._asks_for_subtree(run, asked, verdict):
            if self.tree.approved_above(run):
                return Verdict(action="allow", why="a person approved the sub-agent that it is a part of")
            if self.tree.config.policy.offers(run.depth + 1):
                why = f"{verdict.why}; with it, what this sub-agent starts in turn is approved"
                return replace(verdict, why=why)
        return verdict

    def _asks_for_subtree(self, run: Run, asked: Asked, verdict: Verdict) -> bool:
        """Whether a person is asked because a model makes up an agent, and not by a rule or before each."""
        made_up = asked.made_up and run.authority.rules.delegation == "made-up"
        return made_up and verdict.action == "ask" and not verdict.by_rule

    async def gate(self, run: Run, tool: Tool, call: ToolCall, arguments: dict[str, Any]) -> Admitted:
        """Judge a call by the rules and by what could leave with it, and ask where they say so."""
        asked = asked_of(run, tool, arguments)
        verdict = self.judge(run, tool, arguments)
        if verdict.action == "deny":
            run.log.write(AccessDenied, what=tool.name, detail=verdict.why, call_id=call.id)
            why = f"denied by {verdict.why}: {tool.name} will not run. Find another way."
            raise Refused(why, not_run="denied")
        if verdict.action == "ask" and tool.harmless is not None and tool.harmless(arguments):
            verdict = Verdict(action="allow", why="it only looks")
        earlier = run.state.answers.get(call.id)
        if earlier is not None:
            answer = Answer(
                decision=earlier.decision, reason=earlier.reason, arguments=earlier.arguments, by=earlier.by
            )
            _refuse_unsealed(run, call, verdict)
            passage = passage_of(run, tool, asked, self.tree.states())
            return Admitted(edited=self._obey(tool, answer), address=passage.address)
        passage = await self._passage(run, tool, asked, f"{run.id}:{call.id}")
        concern = passage.concern
        if verdict.action == "allow" and concern is None:
            return Admitted(address=passage.address)
        answered = f"{run.id}:{call.id}" in self._early  # while nothing ran: it counts whoever is here now
        if not answered and await self._cleared(run, tool, call, asked, verdict, concern):
            passage = await self._passage(run, tool, asked, f"{run.id}:{call.id}")
            concern = passage.concern
            if concern is None:  # nothing was read meanwhile that could leave with it
                return Admitted(address=passage.address)
        if self.tree.config.answering == "refuse" and not answered:
            if concern is not None:
                run.log.write(AccessDenied, what=tool.name, detail=concern.why, call_id=call.id)
            network = run.authority.rules.sandbox_network
            raise Refused(_nobody_to_ask(verdict, asked, concern, network=network), not_run="unattended")
        answer = await self._ask(run, tool, call, asked, verdict, concern)
        if answer.decision != "reject":
            _refuse_unsealed(run, call, verdict)
        return Admitted(edited=self._obey(tool, answer), address=passage.address)

    async def _cleared(
        self, run: Run, tool: Tool, call: ToolCall, asked: Asked, verdict: Verdict, concern: Concern | None
    ) -> bool:
        """Whether the reviewer clears a call that a person would be asked about and has not been yet."""
        if concern is not None or f"{run.id}:{call.id}" in run.state.waiting:
            return False
        return may_clear(asked, verdict) and await clears(self.tree, run, tool, call, asked)

    async def _passage(self, run: Run, tool: Tool, asked: Asked, approval_id: str) -> Passage:
        """Where a call goes. What is being asked about for another call is not asked twice: it waits."""
        while True:
            passage = passage_of(run, tool, asked, self.tree.states())
            if passage.concern is None:
                return passage
            if is_withheld(passage.concern, self.tree.states()):
                why = f"not run: the person was asked and said no ({passage.concern.why}). Find another way."
                raise Refused(why, not_run="rejected")
            if not self._asked_elsewhere(passage.concern, approval_id):
                return passage
            run.clock.pause()
            self.tree.slots.lend(run.id)
            try:
                await self._settled.wait()
                await self.tree.slots.reclaim(run.id)
            finally:
                run.clock.resume()

    def _asked_elsewhere(self, concern: Concern, approval_id: str) -> bool:
        """Whether a person is asked about the same for another call, or is to be, since that was so before a
        restart and the run that had asked goes on here."""
        about = set(concern.about)
        if any(about.intersection(keys) for one, keys in self._asking.items() if one != approval_id):
            return True
        questions = {one.approval_id: one for state in self.tree.states() for one in state.waiting.values()}
        if approval_id in questions:
            return False  # both have asked already: neither waits for the other
        return any(
            about.intersection(question.concerns)
            and self.tree.goes_on(question.run_id)
            and (self.tree.config.answering != "refuse" or one in self._early)
            for one, question in questions.items()
        )

    def started_all(self, run: Run, call_id: str) -> None:
        """A call has started all its children, or is over: what others of it had asked, nobody asks again."""
        if self.tree.all_here(run, call_id):
            self.settled()

    def settled(self) -> None:
        """A question is answered, or whoever asked it has ended: those who wait for it look again."""
        self._settled.set()
        self._settled = asyncio.Event()

    async def _ask(
        self, run: Run, tool: Tool, call: ToolCall, asked: Asked, verdict: Verdict, concern: Concern | None
    ) -> Answer:
        """Put a question to a person, and what it holds for the whole workflow to nobody else meanwhile."""
        approval_id = f"{run.id}:{call.id}"
        self._asking[approval_id] = concern.about if concern else ()
        self._questions[approval_id] = asked, verdict, concern
        try:
            return await self._question(run, tool, call, asked, verdict, concern)
        finally:
            del self._asking[approval_id], self._questions[approval_id]
            self.settled()

    async def _grant(self, question: ApprovalRequested, answered: ApprovalAnswered) -> None:
        """What an answer is for beyond its own question: calls to come, and those that wait already."""
        grant = grant_of(question, answered)
        if grant is None:
            return
        self.granted.add(grant)
        for approval_id, (asked, verdict, concern) in list(self._questions.items()):
            if approval_id != question.approval_id and concern is None and _covers(grant, asked, verdict):
                await self._answer(
                    approval_id,
                    Answer(decision="approve", by=answered.by, along_with=question.approval_id),
                )

    async def _question(
        self, run: Run, tool: Tool, call: ToolCall, asked: Asked, verdict: Verdict, concern: Concern | None
    ) -> Answer:
        reasons = [verdict.why] if verdict.action == "ask" else []
        approval_id = f"{run.id}:{call.id}"
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[approval_id] = waiting
        if approval_id in self._early:
            waiting.set_result(self._early.pop(approval_id))
        run.clock.pause()
        withdraw = _nothing
        try:
            if approval_id not in run.state.waiting:
                await run.log.write(
                    ApprovalRequested,
                    approval_id=approval_id,
                    call_id=call.id,
                    tool=tool.name,
                    arguments=call.arguments,
                    effect=asked.effect,
                    risk=asked.risk if concern is None else "high",
                    reason="; ".join([*reasons, *([concern.why] if concern else [])]),
                    preview=await preview_of(run, tool, asked),
                    path=run.path,
                    concerns=concern.about if concern else (),
                    unsealed=verdict.unsealed,
                    answer_by=self._deadline(now()),
                    **self._offered(run, asked, verdict, concern),
                )
                if concern is None and any(_covers(grant, asked, verdict) for grant in self.granted):
                    await self._answer(approval_id, Answer(decision="approve", reason=MEANWHILE))
            self.tree.slots.lend(run.id)
            if not waiting.done() and approval_id in run.state.waiting:
                # Here, and not where it is logged: it may have been logged before a restart or a fork.
                withdraw = self.tree.config.ask(run.state.waiting[approval_id])
            answer = await self._answered(run, approval_id, waiting)
            await self.tree.slots.reclaim(run.id)
        finally:
            withdraw()
            self._open.pop(approval_id, None)
            run.clock.resume()
        question = run.state.waiting.get(approval_id)
        answered = run.log.stamp(
            ApprovalAnswered,
            approval_id=approval_id,
            call_id=call.id,
            decision=answer.decision,
            reason=answer.reason,
            arguments=answer.arguments,
            by=answer.by,
            along_with=answer.along_with,
        )
        await run.log.commit(answered)
        if question is not None:
            await self._grant(question, answered)
        return answer

    def _offered(self, run: Run, asked: Asked, verdict: Verdict, concern: Concern | None) -> dict[str, Any]:
        """What a question says of the answers to it: the rule that covers the call, and what may be said.

        What is done in a copy of the project is approved for that call alone: the same call would mean
        another thing in the project itself. A rule for good is of no use where another rule asks, and none
        is kept for commands that the sandbox makes harmless.
        """
        asks, project = verdict.action == "ask", self.tree.config.project
        own = run.files.project
        copied = own is not None and project is not None and real_path(own) != real_path(project)
        if copied or asked.tool == MERGE:  # no two merges are of the same change
            return {"rule": "", "answers": ("approve", "reject"), "sealed": asked.sealed}
        if concern is not None:
            rule = "" if asks else concern.rule or ""
            more: list[Decision] = []
        else:
            rule = "" if verdict.each_time else suggest_rule(asked) or ""
            more = [] if verdict.each_time else ["approve_run", "approve_tool"] if rule else ["approve_tool"]
        boxed = verdict.unsealed or asked.sealed
        if rule and project is not None and not boxed and not (asks and verdict.by_rule):
            more.append("approve_always")
        return {"rule": rule, "answers": ("approve", *more, "reject"), "sealed": asked.sealed}

    def _deadline(self, since: float) -> float | None:
        within = self.tree.config.settings.approvals.answer_within
        return None if within is None else since + within

    async def _answered(self, run: Run, approval_id: str, waiting: asyncio.Future[Answer]) -> Answer:
        """The answer, also where nobody gives one in time. That time passes while nothing runs, too."""
        question = run.state.waiting.get(approval_id)
        if question is not None and not waiting.done():
            since, until = question.at, question.answer_by
            began = run.state.started
            # Who takes up a run that had ended is asked anew, and so is who forks one.
            anew = max(run.state.reopened_at, (began.forked_at if began else None) or 0.0)
            if since < anew:
                since, until = anew, self._deadline(anew)
            if until is not None:
                await asyncio.wait([waiting], timeout=max(0.0, until - now()))
                if not waiting.done():
                    await self._give_up(question, until - since)
        return await waiting

    async def _give_up(self, question: ApprovalRequested, seconds: float) -> None:
        """Nobody has answered in time. Whoever does so at this very moment still comes first."""
        # Between the moment that the deadline is of and that of the event there may be some milliseconds.
        why = f"nobody answered within {say(round(seconds, 2))} s whether {question.tool} may run"
        why = f"{why} (approvals.answer_within)"
        if self.tree.config.settings.approvals.unanswered == "stop":
            self.tree.cancel(self.tree.root_id, why, by=NOBODY)
            return
        await self._answer(question.approval_id, Answer(decision="reject", reason=why, by=NOBODY))

    async def _answer(self, approval_id: str, answer: Answer) -> None:
        """Answer a question from here. Whoever was faster has answered it."""
        await self.tree.config.store.send(
            Signal(
                root_id=self.tree.root_id,
                run_id=approval_id.partition(":")[0],
                kind="answer",
                key=approval_id,
                body=json.dumps(msgspec.structs.asdict(answer)),
                at=now(),
            )
        )

    def _obey(self, tool: Tool, answer: Answer) -> str | None:
        if answer.decision == "reject" and answer.by == NOBODY:
            raise Refused(f"not run: {answer.reason}. Find another way.", not_run="rejected")
        if answer.decision == "reject":
            told = f"the person rejected this call of {tool.name}"
            if answer.by in ("", FAILED_FUNCTION):  # nobody could give an answer, or nobody could read it
                told = f"this call of {tool.name} was not approved"
            raise Refused(f"{told}: {answer.reason or 'no reason given'}", not_run="rejected")
        return answer.arguments


def _covers(grant: Grant, asked: Asked, verdict: Verdict) -> bool:
    """Whether a call is one that a person approved for the rest of the run."""
    if grant.tool != asked.tool or verdict.each_time or (verdict.unsealed and not grant.unsealed):
        return False
    if grant.sealed and not asked.sealed:
        return False
    return not grant.rule or parse_rule(grant.rule).matches(asked, "allow")


def _nothing() -> None:
    """Nothing was begun."""


async def _nobody(run: Run) -> None:
    """There are no children."""


def _answer_in(signal: Signal) -> Answer:
    """The first answer wins, also one that cannot be read: the call must not wait for another for ever."""
    try:
        # Not by msgspec's own reader: people may have written half a character, which it does not take.
        return checked(msgspec.convert(json.loads(signal.body), Answer))
    except (ValueError, RecursionError, msgspec.ValidationError, ConfigError) as error:
        log.warning("%s: an answer cannot be read: %s", signal.key, error)
        return Answer(decision="reject", reason=f"the answer that was given cannot be read: {error}", by="")


def _refuse_unsealed(run: Run, call: ToolCall, verdict: Verdict) -> None:
    """A question may be older than this process: where it was asked, the command could be sealed off."""
    if verdict.unsealed and call.id not in run.state.unsealed:
        raise Refused(
            f"not run: it was approved to run in the sandbox, and now {verdict.why}. Call it again: the "
            "person is asked anew"
        )


_ASK = "run with --wait-approvals and answer (in a program: approve=…)"
_YES = "run with --yes (in a program: yes=True)"


def _nobody_to_ask(
    verdict: Verdict, asked: Asked, concern: Concern | None = None, *, network: bool = True
) -> str:
    """A refusal that says how the call could be allowed. What a rule asks about, no other rule allows."""
    nobody = "and this run has nobody to ask"
    if verdict.unsealed:
        return (
            f"refused: {verdict.why}, {nobody}. 'retinue doctor' says more. To run commands without it, set "
            f'approvals.sandbox = "off", or {_ASK}.'
        )
    if verdict.action == "allow" and concern is not None:
        return (
            f'refused: {concern.why}, {nobody}. To allow it, add "{concern.rule}" to allow under [approvals] '
            f"in the settings, or {_YES}."
        )
    if verdict.each_time:
        return (
            f"refused: {verdict.why}, {nobody}. Write the command plainly, without variables, eval and text "
            f"that is run, or {_ASK}."
        )
    if verdict.by_rule:
        return (
            f"refused: {verdict.why} wants a person asked, {nobody}. To allow it, take that rule out of ask "
            f"under [approvals] in the settings, or {_ASK}."
        )
    rule = suggest_rule(asked)
    way = f'add "{rule}" to allow under [approvals] in the settings' if rule else _ASK
    if asked.sealed and not network:
        way = f'set approvals.auto = "sandboxed" (commands run in the sandbox, without network), or {way}'
    return f"refused: {verdict.why}, {nobody}. To allow it, {way}, or {_YES}."
