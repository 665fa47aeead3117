"""One conversation with its run: what a person says goes into it, what happens is heard from it.

No terminal here: the screen of the chat, its plain form and their tests all talk to this. What was said and
done is in the log alone; a conversation is taken up again by its id, here or on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
How = Literal["begun", "told"]
DENY, THRESHOLD = "approvals.deny", "context.threshold"
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

    text: str
    before: int


def _in_force(events: Sequence[AnyEvent]) -> dict[str, Any]:
    """The settings that a conversation was begun with, and those that it was given since."""
    found: dict[str, Any] = {}
    for event in events:
        if isinstance(event, RunStarted) and event.depth == 0:
            found |= event.options.settings
        elif isinstance(event, RunResumed) and event.depth == 0:
            found |= event.settings
    return found


class ChatSession:
    """The conversation that is on the screen. Another one can take its place: `new`, `take_up`, `rewind`."""

    def __init__(self, retinue: Retinue, given: ChatGiven, heard: Heard) -> None:
        self.retinue, self.given = retinue, given
        self.agent = given.agent or retinue.settings.default_agent
        self.model = given.model or ""
        """For what is said next; without one, that of the settings or of the conversation so far."""
        self.effort: Effort = given.effort
        self.planning = False
        """Only what reads is allowed in what is said next."""
        self.run_id = ""
        self.story = Story()
        self.told = heard
        self._stop = retinue.hear(self._hear)
        self._in_force: dict[str, Any] = {}
        """The settings of its own that the conversation has by its log."""
        self._compacting, self._threshold = False, retinue.settings.context.threshold
        self._model_changed = False
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

    # -- saying something ------------------------------------------------------------------------------------

    async def say(self, text: str, attachments: Sequence[Attached] = ()) -> How:
        """Begin, go on, or tell the run that is at work: it reads that before its next step."""
        if self.working and await self.retinue.message(self.run_id, text, attachments=attachments):
            return "told"
        if self.run_id:
            await self._go_on(text, attachments)
        else:
            await self._begin(text, attachments)
        return "begun"

    async def _begin(self, text: str, attachments: Sequence[Attached]) -> None:
        from retinue.run_ids import new_id

        self.run_id = new_id()  # known before the first event of it is heard
        try:
            await self.retinue.start(
                self.agent,
                text,
                run_id=self.run_id,
                label=self.given.label,
                attachments=attachments,
                settings=self._wanted(),
                strict_sources=self.given.strict_sources,
                effort=self.effort,
                model=self.model or None,
            )
        except BaseException:
            if self.root is None:
                self.run_id = ""
            raise
        self._settled()

    async def _go_on(self, text: str, attachments: Sequence[Attached]) -> None:
        await self.retinue.resume(
            self.run_id,
            message=text,
            attachments=attachments,
            model=self.model if self._model_changed else None,
            settings=self._differing() or None,
        )
        self._settled()

    def _wanted(self) -> dict[str, Any]:
        """The settings that the next message is to be answered with, as far as they are the chat's."""
        wanted = dict(self.given.settings)
        own = self.retinue.settings.approvals.deny
        if self.planning or DENY in self._in_force:
            wanted[DENY] = [*own, *(PLAN_DENIES if self.planning else ())]
        if self._compacting:
            wanted[THRESHOLD] = MAKE_ROOM
        elif self._in_force.get(THRESHOLD) == MAKE_ROOM:
            wanted[THRESHOLD] = self._threshold
        return wanted

    def _differing(self) -> dict[str, Any]:
        """Those of them that the log of the conversation does not have."""
        return {name: value for name, value in self._wanted().items() if self._in_force.get(name) != value}

    def _settled(self) -> None:
        """What the message that was just said was to be answered with is in the log now."""
        self._in_force |= self._wanted()
        self._model_changed = self._compacting = False

    def use_model(self, name: str) -> None:
        """For what is said from now on."""
        self.model, self._model_changed = name, True

    def plan(self, on: bool) -> None:
        """From the next message on: only what reads, or everything again. What rules deny stays denied."""
        self._refuse_at_work()
        self.planning = on

    def compact(self) -> None:
        """With the next message, old turns are dropped or summed up."""
        self._refuse_at_work()
        if THRESHOLD not in self._in_force or self._in_force[THRESHOLD] != MAKE_ROOM:
            self._threshold = self._in_force.get(THRESHOLD, self.retinue.settings.context.threshold)
        self._compacting = True

    async def stop(self, reason: str = "stopped by the person") -> bool:
        """End the turn; what was found so far is kept, and the conversation goes on with the next."""
        return bool(self.run_id) and await self.retinue.cancel(self.run_id, reason)

    async def wait(self) -> Report | None:
        return await self.retinue.wait(self.run_id) if self.run_id else None

    # -- other conversations ---------------------------------------------------------------------------------

    def new(self) -> None:
        """The next message begins another conversation. The last one stays as it is."""
        self._refuse_at_work()
        self.run_id, self.story, self._in_force = "", Story(), {}

    async def take_up(self, row: RunRow) -> Sequence[AnyEvent]:
        """Go on with an earlier conversation. Returns all that happened in it."""
        self._refuse_at_work()
        if row.cwd and not same_folder(row.cwd, self.retinue.cwd):
            raise ConfigError(
                f"{row.run_id} worked in {row.cwd}", fix=f"cd {row.cwd} && retinue chat --resume {row.run_id}"
            )
        shown = await self._read(row.root_id)
        root = self.root
        if root is not None:
            self.agent, self.model = root.agent, root.model
        if self.given.model:
            self.use_model(self.given.model)
        if row.completed_at is None and await self.retinue.abandoned(row.root_id):
            await self.retinue.resume(row.root_id)  # it was cut off: what it was at goes on
        return shown

    async def _read(self, run_id: str) -> list[AnyEvent]:
        """Its past, and from there on whatever is heard of it."""
        self.run_id, self.story, self._held = run_id, Story(), []
        shown: list[AnyEvent] = []
        try:
            events = await self.retinue.store.events(run_id)
            shown += [cast("AnyEvent", self.story.apply(event)) for event in events]
        finally:
            held, self._held = self._held, None
        self._in_force = _in_force(shown)
        self.planning = set(PLAN_DENIES) <= set(self._in_force.get(DENY, ()))
        last = shown[-1].pos if shown else 0
        for event in held:
            if not isinstance(event, Event) or event.pos > last:
                self.told(self.story.apply(event))
        return shown

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
                found.append(EarlierMessage(text=event.prompt, before=0))
            elif isinstance(event, MessageReceived) and mine and event.sender == "person" and not event.asks:
                found.append(EarlierMessage(text=event.text, before=before))
            before = event.pos
        return found

    async def rewind(self, said: EarlierMessage, text: str) -> None:
        """Say something else in the place of a message: in a copy that ends before it. The old one stays."""
        self._refuse_at_work()
        if not said.before:
            self.new()
            await self._begin(text, ())
            return
        events = await self.retinue.store.events(self.run_id)
        then = _in_force([event for event in events if event.pos <= said.before])
        if self.planning and not set(PLAN_DENIES) <= set(then.get(DENY, ())):
            raise ConfigError("there it was not planning yet", fix="/plan off, then /rewind")
        forked = await self.retinue.fork(self.run_id, at=said.before, message=text)
        await self._read(forked)

    def _refuse_at_work(self) -> None:
        if self.working:
            raise ConfigError("it is still at work", fix="wait, or press Esc to stop it")

    def children(self) -> list[Node]:
        """Every child of this conversation, in the order they began."""
        root = self.root
        return [node for node in root.walk() if node is not root] if root is not None else []
