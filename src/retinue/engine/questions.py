"""Whether a call may run: judged by the rules, and put to a person where these say so.

A question is an event in the log of the run that asks; `engine.inbox` brings its answer, whoever gives it.
While a run waits, its clock and those of its ancestors stand still, it holds no slot, and its siblings go on.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from retinue.approvals import Rules, Verdict
from retinue.authority.flows import Concern, Passage
from retinue.authority.rules import Asked
from retinue.clock import say
from retinue.engine.answers import NOBODY, Answer, fitting, obey, signal_of
from retinue.engine.asking_order import AskingOrder
from retinue.engine.concern import is_withheld, later_of, passage_of
from retinue.engine.offers import covers, nobody_to_ask, offered, refuse_unsealed
from retinue.engine.preview import preview_of
from retinue.engine.reviewer import clears, may_clear
from retinue.engine.tree import RunTree
from retinue.errors import Refused
from retinue.events import AccessDenied, ApprovalAnswered, ApprovalRequested, now
from retinue.run import Admitted, Run
from retinue.run_state import Grant, grant_of
from retinue.tool_running import asked_before, asked_of, refuse_another
from retinue.tools.base import Tool
from retinue.types import ToolCall

MEANWHILE = "approved for the rest of the run while it was being asked"
BUSY = 10.0
"""Seconds that a question may take to be written."""


class Questions:
    """The calls of a tree that wait for a person, and what people have approved beyond their own question."""

    def __init__(self, tree: RunTree) -> None:
        self.tree = tree
        self.granted: set[Grant] = set()
        self._waiting: dict[str, tuple[Asked, Verdict, Concern | None]] = {}
        """What people are being asked, by the question."""
        self._asking: dict[str, tuple[str, ...]] = {}
        """What people are being asked about for the whole workflow, by the question: others wait for it."""
        self._settled = asyncio.Event()
        self._open: dict[str, asyncio.Future[Answer]] = {}
        self._early: dict[str, Answer] = {}
        self._alone: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        """Kept by those who wait."""
        self.order = AskingOrder()

    def tell(self, approval_id: str, answer: Answer) -> None:
        """Hand an answer to the call that waits for it, or keep it for the one that will."""
        waiting = self._open.pop(approval_id, None)
        if waiting is None or waiting.done():
            run_id, _, call_id = approval_id.partition(":")
            state = self.tree.state(run_id)
            if state is None or call_id not in state.answers:  # else it is in the log: nobody asks again
                self._early[approval_id] = answer
        else:
            waiting.set_result(answer)

    def one_by_one(self, run: Run, call_id: str) -> asyncio.Lock:
        """For the questions of one call that runs: each is known by how many of them were answered before."""
        return self._alone.setdefault(f"{run.id}:{call_id}", asyncio.Lock())

    def judge(self, run: Run, tool: Tool, arguments: dict[str, Any], composed: bool = False) -> Verdict:
        """What the rules say; what a person approved for the rest of the run needs no more asking."""
        asked = asked_of(run, tool, arguments)
        verdict = self._judged(run, asked)
        rules, states = self._rules(run), self.tree.states()
        concern = passage_of(run, tool, asked, states, rules).concern if composed else None
        if concern is not None and verdict.action != "deny":
            return Verdict(action="ask", why=concern.why)
        return verdict

    def _rules(self, run: Run, call_id: str = "") -> Rules:
        """The rules for a call: in a replay, those of when it was made."""
        rules, config = run.authority.rules, self.tree.config
        then = config.approved_all(run.id, call_id)
        if then is None:
            return rules
        return replace(rules, auto_risk="high" if then else config.settings.approvals.auto_risk)

    def _judged(self, run: Run, asked: Asked, call_id: str = "") -> Verdict:
        verdict = self._rules(run, call_id).judge(asked)
        if verdict.action == "ask" and any(covers(grant, asked, verdict) for grant in self.granted):
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
        refuse_another(tool, call, run.state.asked_about.get(call.id))
        asked = await asked_before(run, tool, arguments)
        verdict = self._judged(run, asked, call.id)
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
            refuse_unsealed(run, call, verdict)
            rules, states = self._rules(run, call.id), self.tree.states()
            passage = passage_of(run, tool, asked, states, rules, call_id=call.id)
            return Admitted(edited=obey(tool, answer), address=passage.address)
        passage = await self._passage(run, tool, asked, f"{run.id}:{call.id}")
        concern = passage.concern
        if concern is None and tool.concern is not None:
            concern = await tool.concern(arguments, run.id)
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
            raise Refused(nobody_to_ask(verdict, asked, concern, network=network), not_run="unattended")
        answer = await self._ask(run, tool, call, asked, verdict, concern)
        if answer.decision != "reject":
            refuse_unsealed(run, call, verdict)
        return Admitted(edited=obey(tool, answer), address=passage.address)

    async def _cleared(
        self, run: Run, tool: Tool, call: ToolCall, asked: Asked, verdict: Verdict, concern: Concern | None
    ) -> bool:
        """Whether the reviewer clears a call that a person would be asked about and has not been yet."""
        if concern is not None or f"{run.id}:{call.id}" in run.state.waiting:
            return False
        return may_clear(asked, verdict) and await clears(self.tree, run, tool, call, asked)

    async def _passage(self, run: Run, tool: Tool, asked: Asked, approval_id: str) -> Passage:
        """Where a call goes. What is being asked about for another call is not asked twice: it waits."""
        later = await later_of(tool, asked, self.tree.config.environ)
        call_id = approval_id.removeprefix(f"{run.id}:")
        rules = self._rules(run, call_id)
        while True:
            states = self.tree.states()
            passage = passage_of(run, tool, asked, states, rules, call_id=call_id, later=later)
            if passage.concern is None:
                return passage
            if is_withheld(passage.concern, states):
                why = f"not run: the person was asked and said no ({passage.concern.why}). Find another way."
                raise Refused(why, not_run="rejected")
            if not self._asked_elsewhere(passage.concern, approval_id):
                return passage
            # Else this would wait for a question that waits for the one of this.
            self.order.leave(run, call_id)
            run.clock.pause()
            try:
                async with self.tree.resting(run.id, call_id):
                    await self._settled.wait()
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
        self._waiting[approval_id] = asked, verdict, concern
        try:
            return await self._question(run, tool, call, asked, verdict, concern)
        finally:
            del self._asking[approval_id], self._waiting[approval_id]
            self.settled()

    async def _grant(self, question: ApprovalRequested, answered: ApprovalAnswered) -> None:
        """What an answer is for beyond its own question: calls to come, and those that wait already."""
        grant = grant_of(question, answered)
        if grant is None:
            return
        self.granted.add(grant)
        for approval_id, (asked, verdict, concern) in list(self._waiting.items()):
            if approval_id != question.approval_id and concern is None and covers(grant, asked, verdict):
                await self._answer(
                    approval_id,
                    Answer(decision="approve", by=answered.by, along_with=question.approval_id),
                )

    async def _question(
        self, run: Run, tool: Tool, call: ToolCall, asked: Asked, verdict: Verdict, concern: Concern | None
    ) -> Answer:
        reasons = [verdict.why] if verdict.action == "ask" else []

        async def write(approval_id: str) -> None:
            shown = await preview_of(run, tool, asked)
            await self.order.turn(run, call.id)
            written = run.log.write(
                ApprovalRequested,
                approval_id=approval_id,
                call_id=call.id,
                tool=tool.name,
                arguments=call.arguments,
                effect=asked.effect,
                risk=asked.risk if concern is None else "high",
                reason="; ".join([*reasons, *([concern.why] if concern else [])]),
                concern=concern.why if concern else "",
                preview=shown.text,
                shown=shown.digest,
                path=run.path,
                concerns=concern.about if concern else (),
                unsealed=verdict.unsealed,
                uncovered=verdict.uncovered,
                answer_by=self.deadline(now()),
                **offered(run, asked, verdict, concern, self.tree.config.project),
            )
            self.order.leave(run, call.id)
            await written
            if concern is None and any(covers(grant, asked, verdict) for grant in self.granted):
                await self._answer(approval_id, Answer(decision="approve", reason=MEANWHILE))

        if f"{run.id}:{call.id}" in run.state.waiting:  # it was put before a restart
            self.order.leave(run, call.id)
        return await self.put(run, call.id, write, tool=tool, waits=self.tree.resting(run.id, call.id))

    async def put(
        self,
        run: Run,
        call_id: str,
        write: Callable[[str], Awaitable[None]],
        *,
        tool: Tool | None = None,
        waits: AbstractAsyncContextManager[None] | None = None,
    ) -> Answer:
        """Put a question to a person, which `write` logs unless it was asked before, and log the answer.

        `tool` is the one that is to take arguments which are edited. `waits` is around the time until there
        is an answer; else the run lends its slot alone.
        """
        approval_id = f"{run.id}:{call_id}"
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[approval_id] = waiting
        if approval_id in self._early:
            waiting.set_result(self._early.pop(approval_id))
        run.clock.pause()
        withdraw = _nothing
        try:
            if approval_id not in run.state.waiting:
                await write(approval_id)
            async with waits or self.tree.slots.lent(run.id):
                if not waiting.done() and approval_id in run.state.waiting:
                    # Here, and not where it is logged: it may have been logged before a restart or a fork.
                    withdraw = self.tree.config.ask(run.state.waiting[approval_id])
                answer = await self._answered(run, approval_id, waiting)
                await self.tree.config.answer_due(approval_id)
        finally:
            withdraw()
            self._open.pop(approval_id, None)
            run.clock.resume()
        if tool is not None:
            answer = fitting(tool, approval_id, answer)
        question = run.state.waiting.get(approval_id)
        answered = run.log.stamp(
            ApprovalAnswered,
            approval_id=approval_id,
            call_id=call_id,
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

    def may_ask(self, approval_id: str) -> bool:
        """Whether there is anyone to answer, or somebody has already."""
        return self.tree.config.answering != "refuse" or approval_id in self._early

    def deadline(self, since: float) -> float | None:
        """Until when a question that is asked now waits for an answer."""
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
                since, until = anew, self.deadline(anew)
            if until is not None:
                await asyncio.wait([waiting], timeout=max(0.0, until - now()))
                if not waiting.done():
                    await self._give_up(question, until - since)
        return await waiting

    async def _give_up(self, question: ApprovalRequested, seconds: float) -> None:
        """Nobody has answered in time. Whoever does so at this very moment still comes first."""
        # Between the moment that the deadline is of and that of the event a busy machine takes its time.
        within = self.tree.config.settings.approvals.answer_within
        if within is not None and 0 <= within - seconds < BUSY:
            seconds = within
        why = f"nobody answered within {say(round(max(seconds, 0.0), 2))} s whether {question.tool} may run"
        why = f"{why} (approvals.answer_within)"
        if self.tree.config.settings.approvals.unanswered == "stop":
            self.tree.cancel(self.tree.root_id, why, by=NOBODY)
            return
        await self._answer(question.approval_id, Answer(decision="reject", reason=why, by=NOBODY))

    async def _answer(self, approval_id: str, answer: Answer) -> None:
        """Answer a question from here. Whoever was faster has answered it."""
        await self.tree.config.store.send(signal_of(self.tree.root_id, approval_id, answer))


def _nothing() -> None:
    """Nothing was begun."""
