"""One conversation with its run: what a person says goes into it, what happens is heard from it.

No terminal here: the screen of the chat, its plain form and their tests all talk to this. What was said and
done is in the log alone; a conversation is taken up again by its id, here or on the page.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from retinue.cli.opening import rows_of_folder, same_folder
from retinue.errors import ConfigError
from retinue.events import AnyEvent, Event, LiveEvent, MessageReceived, RunResumed, RunStarted
from retinue.store.base import RunRow
from retinue.story import Story
from retinue.story_nodes import Node
from retinue.types import Effort, Report

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.attachments import Attached

Heard = Callable[[LiveEvent], None]
ShowPast = Callable[[Sequence[AnyEvent]], None]
How = Literal["begun", "told"]
DENY, THRESHOLD, TURNS = "approvals.deny", "context.threshold", "limits.max_turns"
PLAN_DENIES = ("effect:write", "effect:execute")
"""What planning keeps from running."""
MAKE_ROOM = 0.01
"""The share of the context above which old turns go, for one message."""


@dataclass(frozen=True, kw_only=True)
class ChatGiven:
    """What the command line said of the conversation."""

    agent: str | None = None
    model: str | None = None
    effort: Effort = ""
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    strict_sources: bool = False


@dataclass(frozen=True, kw_only=True)
class EarlierMessage:
    """A message of a person in a conversation, and the place before it: a fork there leaves it out."""

    run_id: str
    text: str
    before: int


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How a message is to be answered, as it stood when the person sent it. What they type after it is for
    the next one."""

    agent: str
    model: str
    effort: Effort
    planning: bool
    compacting: bool


@dataclass(frozen=True, kw_only=True)
class InForce:
    """What a conversation is answered with by its log: settings of its own, and its model."""

    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model: str = ""
    threshold: float | None = None
    """That of the context, if one is set: the last one that was not to make room."""

    @property
    def planning(self) -> bool:
        return set(PLAN_DENIES) <= set(self.settings.get(DENY, ()))

    def given(self, settings: Mapping[str, Any], model: str | None) -> InForce:
        """The same, after it was given these."""
        threshold = settings.get(THRESHOLD, MAKE_ROOM)
        return InForce(
            settings={**self.settings, **settings},
            model=model or self.model,
            threshold=self.threshold if threshold == MAKE_ROOM else threshold,
        )

    @staticmethod
    def by(events: Sequence[AnyEvent]) -> InForce:
        found = InForce()
        for event in events:
            if isinstance(event, RunStarted) and not event.depth:
                found = found.given(event.options.settings, event.model)
            elif isinstance(event, RunResumed) and not event.depth:
                found = found.given(event.settings, event.model)
        return found


class ChatSession:
    """The conversation that is on the screen. Another one can take its place: `new`, `take_up`, `rewind`."""

    def __init__(self, retinue: Retinue, given: ChatGiven, heard: Heard) -> None:
        self.retinue, self.given = retinue, given
        self.agent = given.agent or retinue.settings.default_agent
        self.model: str = given.model or ""
        """For what is said next; without one, that of the settings or of the conversation so far."""
        self.effort: Effort = given.effort
        self.planning: bool = False
        """Only what reads is allowed in what is said next."""
        self.compacting: bool = False
        """With what is said next, old turns are dropped or summed up."""
        self.run_id: str = ""
        self.story: Story = Story()
        self.told = heard
        self._stop = retinue.hear(self._hear)
        self._in_force: InForce = InForce()
        self._held: list[LiveEvent] | None = None
        """What is heard while the past of a conversation is read."""

    def close(self) -> None:
        self._stop()

    def _hear(self, event: LiveEvent) -> None:
        if event.root_id != self.run_id:
            return
        if self._held is not None:
            self._held.append(event)
        else:
            self.told(self.story.apply(event))

    @property
    def root(self) -> Node | None:
        return self.story.root

    @property
    def working(self) -> bool:
        """Whether it works on an answer right now. Children that were left at work do not count."""
        node = self.root
        if not self.run_id or not self.retinue.is_running(self.run_id):
            return False
        return node is None or not node.over

    @property
    def left_at_work(self) -> bool:
        """Whether it has answered, and children of it are at work still."""
        return bool(self.run_id) and not self.working and self.retinue.is_running(self.run_id)

    # -- saying something ------------------------------------------------------------------------------------

    def wanted(self) -> Wanted:
        """How what is said at this moment is to be answered."""
        return Wanted(
            agent=self.agent,
            model=self.model,
            effort=self.effort,
            planning=self.planning,
            compacting=self.compacting,
        )

    async def say(
        self, text: str, attachments: Sequence[Attached] = (), *, wanted: Wanted | None = None
    ) -> How:
        """Begin, go on, or tell the run that is at work: it reads that before its next step."""
        wanted = wanted or self.wanted()
        if self.working and await self.retinue.message(self.run_id, text, attachments=attachments):
            return "told"
        if self.run_id:
            await self._go_on(self.run_id, text, attachments, wanted)
        else:
            await self._begin(text, attachments, wanted)
        return "begun"

    async def _begin(self, text: str, attachments: Sequence[Attached], wanted: Wanted) -> None:
        from retinue.run_ids import new_id

        settings = self._settings(wanted, InForce())
        with self._unless_it_fails():
            self.run_id = new_id()  # known before the first event of it is heard
            await self.retinue.start(
                wanted.agent,
                text,
                run_id=self.run_id,
                label=self.given.label,
                attachments=attachments,
                settings=settings,
                strict_sources=self.given.strict_sources,
                effort=wanted.effort,
                model=wanted.model or None,
            )
        self._note(wanted, settings, wanted.model)

    async def _go_on(self, run_id: str, text: str, attachments: Sequence[Attached], wanted: Wanted) -> None:
        """Say it to the conversation, or to a child of it that has ended."""
        settings, model = self._differing(wanted, self._in_force)
        if run_id != self.run_id:  # for a child: the turns would be its own, the model is its own
            settings.pop(TURNS, None)
            model = None
        await self.retinue.resume(
            run_id, message=text, attachments=attachments, model=model, settings=settings or None
        )
        self._note(wanted, settings, model)

    async def ask_child(self, node: Node, text: str) -> bool:
        """Tell a child something. One that has ended is asked again, which is the truth that is returned."""
        wanted = replace(self.wanted(), compacting=False)
        if node.over:
            await self._go_on(node.run_id, text, (), wanted)
            return True
        if wanted.planning and not self._in_force.planning:
            raise ConfigError(
                f"{node.agent} was asked before /plan and may change things",
                fix="wait for it, stop it, or /plan off",
            )
        if not await self.retinue.message(node.run_id, text):
            await self._go_on(node.run_id, text, (), wanted)
            return True
        return False

    def _settings(self, wanted: Wanted, now: InForce) -> dict[str, Any]:
        """The settings that a message is to be answered with, as far as they are the chat's, where these are
        in force."""
        settings = dict(self.given.settings)
        if wanted.planning or DENY in now.settings:
            denied = PLAN_DENIES if wanted.planning else ()
            settings[DENY] = [*self.retinue.settings.approvals.deny, *denied]
        if wanted.compacting:
            settings[THRESHOLD] = MAKE_ROOM
        elif now.settings.get(THRESHOLD) == MAKE_ROOM:
            usual = self.retinue.settings.context.threshold
            settings[THRESHOLD] = now.threshold if now.threshold is not None else usual
        return settings

    def _differing(self, wanted: Wanted, now: InForce) -> tuple[dict[str, Any], str | None]:
        """Those of them, and the model, that the log does not have."""
        settings = self._settings(wanted, now)
        return (
            {name: value for name, value in settings.items() if now.settings.get(name) != value},
            wanted.model if wanted.model and wanted.model != now.model else None,
        )

    def _note(self, sent: Wanted, settings: Mapping[str, Any], model: str | None) -> None:
        """What was sent with a message is in the log now, and nothing else."""
        self._in_force = self._in_force.given(settings, model)
        if sent.compacting:
            self.compacting = False

    @contextlib.contextmanager
    def _unless_it_fails(self) -> Generator[None]:
        """Another conversation takes the place of this one. If it does not come about, this one is back."""
        before = (self.run_id, self.story, self._in_force)
        self.run_id, self.story, self._in_force = "", Story(), InForce()
        try:
            yield
        except BaseException:
            if self.root is None:  # nothing was heard of it
                self.run_id, self.story, self._in_force = before
            raise

    def plan(self, on: bool) -> None:
        """From the next message on: only what reads, or everything again. What rules deny stays denied."""
        self._refuse_at_work()
        self.planning = on

    def compact(self) -> None:
        """With the next message, old turns are dropped or summed up."""
        self._refuse_at_work()
        self.compacting = True

    async def stop(self, reason: str = "stopped by the person") -> bool:
        """End the turn; what was found so far is kept, and the conversation goes on with the next."""
        return bool(self.run_id) and await self.retinue.cancel(self.run_id, reason)

    async def wait(self) -> Report | None:
        return await self.retinue.wait(self.run_id) if self.run_id else None

    # -- other conversations ---------------------------------------------------------------------------------

    def new(self) -> None:
        """The next message begins another conversation. The last one stays as it is."""
        self._refuse_at_work()
        self.run_id, self.story, self._in_force = "", Story(), InForce()

    async def take_up(self, row: RunRow, shown: ShowPast) -> None:
        """Go on with an earlier conversation. `shown` is handed all that happened in it."""
        self._refuse_at_work()
        if row.cwd and not same_folder(row.cwd, self.retinue.cwd):
            there = f"cd {shlex.quote(row.cwd)} && retinue chat --resume {row.run_id}"
            raise ConfigError(f"{row.run_id} worked in {row.cwd}", fix=there)
        with self._unless_it_fails():
            await self._read(row.root_id, shown)
        root = self.root
        if root is not None:
            self.agent, self.model = root.agent, self.given.model or self._in_force.model
        self.planning = self.planning or self._in_force.planning
        if row.completed_at is None and await self.retinue.abandoned(row.root_id):
            wanted = self.wanted()
            settings, model = self._differing(wanted, self._in_force)
            # it was cut off: what it was at goes on
            await self.retinue.resume(row.root_id, settings=settings or None, model=model)
            self._note(wanted, settings, model)

    async def _read(
        self, run_id: str, shown: ShowPast, begin: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Its past, and from there on whatever is heard of it. What `begin` begins is no past."""
        self.run_id, self._held = run_id, []
        past: list[AnyEvent] = []
        try:
            if begin is not None:
                await begin()
            events = await self.retinue.store.events(run_id)
            live = min((event.pos for event in self._held if isinstance(event, Event)), default=None)
            past += [event for event in events if begin is None or live is None or event.pos < live]
            past = [cast("AnyEvent", self.story.apply(event)) for event in past]
        finally:
            held, self._held = self._held, None
        self._in_force = InForce.by(past)
        shown(past)
        last = past[-1].pos if past else 0
        for event in held:
            if not isinstance(event, Event) or event.pos > last:
                self.told(self.story.apply(event))

    async def earlier(self, limit: int = 20) -> list[RunRow]:
        """Conversations of this folder, newest first."""
        return await rows_of_folder(self.retinue, limit, but=self.run_id)

    async def said(self) -> list[EarlierMessage]:
        """What the person said in this conversation, first to last."""
        if not self.run_id:
            return []
        found: list[EarlierMessage] = []
        before = 0
        for event in await self.retinue.store.events(self.run_id):
            mine = event.run_id == self.run_id
            if isinstance(event, RunStarted) and mine:
                found.append(EarlierMessage(run_id=self.run_id, text=event.prompt, before=0))
            elif isinstance(event, MessageReceived) and mine and event.sender == "person" and not event.asks:
                found.append(EarlierMessage(run_id=self.run_id, text=event.text, before=before))
            before = event.pos
        return found

    async def rewind(
        self,
        said: EarlierMessage,
        text: str,
        attachments: Sequence[Attached] = (),
        *,
        wanted: Wanted | None = None,
        shown: ShowPast,
    ) -> None:
        """Say something else in the place of a message: in a copy that ends before it, which `shown` is
        handed. The old one stays."""
        from retinue.run_ids import new_id

        self._refuse_at_work()
        if said.run_id != self.run_id:
            raise ConfigError(
                "that is a message of another conversation", fix="/rewind lists those of this one"
            )
        wanted = wanted or self.wanted()
        if not said.before:
            await self._begin(text, attachments, wanted)
            return
        old, copy = self.run_id, new_id()
        events = await self.retinue.store.events(old)
        then = InForce.by([event for event in events if event.pos <= said.before])
        settings, model = self._differing(wanted, then)

        async def fork() -> None:
            await self.retinue.fork(
                old,
                at=said.before,
                message=text,
                attachments=attachments,
                model=model,
                settings=settings or None,
                new_run_id=copy,
            )

        with self._unless_it_fails():
            await self._read(copy, shown, fork)
        self._in_force = then
        self._note(wanted, settings, model)

    def _refuse_at_work(self) -> None:
        if self.working:
            raise ConfigError("it is still at work", fix="wait, or press Esc to stop it")

    def children(self) -> list[Node]:
        """Every child of this conversation, in the order they began."""
        root = self.root
        return [node for node in root.walk() if node is not root] if root is not None else []
