"""How a model is asked, beside what it is asked: one struct for runs, agents and providers.

An agent and a request have it; each wire of `models` says it in its provider's words. What a
header holds may be a secret: it is sent, and stands in no log, event or repr.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct

from retinue.types.durations import seconds_of

Level = Literal["low", "medium", "high"]
Effort = Literal["", "low", "medium", "high"]
"""How hard a model is asked to think. Empty: nothing is said, and the provider chooses."""
EFFORTS: tuple[Level, ...] = ("low", "medium", "high")
ServiceTier = Literal["", "auto", "default", "flex", "priority"]
TIERS: tuple[str, ...] = ("auto", "default", "flex", "priority")
HIDDEN = "***"
"""What a log has in place of the value of a header."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_ONLY_VARIABLE = re.compile(r"(?:(?:Bearer|Basic|Token) )?\$\{[A-Za-z_]\w*\}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OUR_HEADERS = frozenset(
    {
        *("authorization", "x-api-key", "x-goog-api-key", "proxy-authorization", "anthropic-version"),
        *("host", "content-length", "content-type", "accept", "accept-encoding", "transfer-encoding"),
        *("connection", "upgrade", "te", "trailer", "expect", "user-agent", "cookie"),
    }
)
_OUR_FIELDS = frozenset(
    {
        *("model", "models", "messages", "input", "contents", "prompt", "prediction", "cachedcontent"),
        *("system", "instructions", "systeminstruction", "tools", "functions", "functioncall"),
        *("toolchoice", "toolconfig", "stream", "streamoptions", "store", "include", "background"),
        *("previousresponseid", "conversation", "conversationid", "n", "candidatecount", "maxtokens"),
        *("maxcompletiontokens", "maxoutputtokens", "responseformat", "mcpservers", "container"),
    }
)
"""What a request says of itself, without regard to case and underscores."""


class HeaderValues(dict[str, str]):
    """Headers by name. What is kept and shown of a value is `***`, unless it only names a variable of the
    environment (`${NAME}`); `sent` has the values themselves."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.sent = dict(given.sent if isinstance(given, HeaderValues) else given)
        super().__init__((n, v if _ONLY_VARIABLE.fullmatch(v) else HIDDEN) for n, v in self.sent.items())

    def hidden(self) -> list[str]:
        """Names of headers whose values no log has."""
        return [name for name, value in self.items() if value == HIDDEN]

    def missing(self) -> list[str]:
        """Names of headers of which a log had no more than that they were there."""
        return [name for name, value in self.sent.items() if value == HIDDEN]

    def resolved(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What is sent. Raises `KeyError` with the name of a variable that is not set."""
        return {n: _VARIABLE.sub(lambda found: environ[found[1]], v) for n, v in self.sent.items()}


class ModelSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a model is asked. What is left out is as its provider has it.

    `effort` is how hard it thinks; `temperature` and `top_p` are how freely it chooses its words, `seed`
    makes that repeatable where a provider can; `max_tokens` is the most that one reply may have; `stop` are
    texts before which it ends. `tool_choice` is `auto`, `none`, `required` (its first reply calls a tool) or
    the name of the tool that its first reply calls. `parallel_tool_calls=False`: one call in each reply.
    `service_tier` is the provider's own class of service. `timeout` is how long one call may take, in seconds
    or like "2m". `extra_headers` and `extra_body` go to the provider as they are; headers may hold `${NAME}`
    for a variable of the environment, and no log has their values.
    """

    effort: Effort = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tool_choice: str = ""
    parallel_tool_calls: bool | None = None
    service_tier: ServiceTier = ""
    timeout: float | None = None
    extra_headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}

    if TYPE_CHECKING:  # what a program may write, where less is kept

        def __init__(
            self,
            *,
            effort: Effort = "",
            temperature: float | None = None,
            top_p: float | None = None,
            max_tokens: int | None = None,
            stop: str | Iterable[str] = (),
            seed: int | None = None,
            tool_choice: str = "",
            parallel_tool_calls: bool | None = None,
            service_tier: ServiceTier = "",
            timeout: float | str | None = None,
            extra_headers: Mapping[str, str] = ...,
            extra_body: Mapping[str, Any] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(cast("Any", self.timeout), str):
            self._set("timeout", seconds_of(cast("Any", self.timeout), "timeout"))
        self._set("stop", (self.stop,) if isinstance(cast("Any", self.stop), str) else tuple(self.stop))
        for name, least, most in _NUMBERS:
            _check_number(name, getattr(self, name), least, most)
        for name in ("max_tokens", "seed"):
            if getattr(self, name) is not None and type(getattr(self, name)) is not int:
                raise TypeError(f"{name} is {getattr(self, name)!r}, not a whole number or None")
        if not isinstance(cast("Any", self.parallel_tool_calls), bool | None):
            raise TypeError(f"parallel_tool_calls is {self.parallel_tool_calls!r}: True, False or None")
        for name, words in (("effort", EFFORTS), ("service_tier", TIERS)):
            if getattr(self, name) not in ("", *words):
                raise ValueError(f"{name} {getattr(self, name)!r} is none of {', '.join(words)}")
        if not isinstance(cast("Any", self.tool_choice), str):
            raise TypeError(f"tool_choice is {self.tool_choice!r}: auto, none, required or a tool's name")
        if not all(isinstance(cast("Any", text), str) and text for text in self.stop):
            raise TypeError(f"stop is {self.stop!r}: a text, or several, and none of them empty")
        self._take_extras()

    def _take_extras(self) -> None:
        for name in ("extra_headers", "extra_body"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"{name} is {type(getattr(self, name)).__name__}, not a mapping")
        for name, value in self.extra_headers.items():
            _check_header(name, value)
        for name in self.extra_body:
            if _plain(name) in _OUR_FIELDS:
                raise ValueError(f"extra_body has {name!r}, which is not yours to set there")
        if self.extra_headers and not isinstance(self.extra_headers, HeaderValues):
            self._set("extra_headers", HeaderValues(self.extra_headers))
        self._set("extra_body", dict(self.extra_body))
        try:
            msgspec.json.encode(self.extra_body)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"extra_body cannot be written as JSON: {error}") from None

    def _set(self, name: str, value: object) -> None:
        msgspec.structs.force_setattr(self, name, value)

    @property
    def headers(self) -> HeaderValues:
        """`extra_headers`, with what they hold."""
        return self.extra_headers if isinstance(self.extra_headers, HeaderValues) else HeaderValues({})

    @property
    def given(self) -> tuple[str, ...]:
        """The names of what is set here."""
        usual = _USUAL
        return tuple(n for n in self.__struct_fields__ if getattr(self, n) != getattr(usual, n))

    def over(self, below: ModelSettings) -> ModelSettings:
        """These settings where they say something, and the others where they do not."""
        if not self.given:
            return below
        found: dict[str, Any] = {name: getattr(self, name) for name in self.given}
        if self.extra_headers:
            found["extra_headers"] = HeaderValues(_joined(below.headers.sent, self.headers.sent))
        if self.extra_body:
            found["extra_body"] = {**below.extra_body, **self.extra_body}
        return msgspec.structs.replace(below, **found)

    def without(self, names: Container[str]) -> ModelSettings:
        """All but those of these names."""
        kept = [name for name in self.given if name not in names]
        return self if len(kept) == len(self.given) else self.only(*kept)

    def only(self, *names: str) -> ModelSettings:
        """Those of these names alone."""
        return ModelSettings(**{name: getattr(self, name) for name in self.given if name in names})


_NUMBERS: tuple[tuple[str, float, float], ...] = (
    ("temperature", 0, 2),
    ("top_p", 0, 1),
    ("max_tokens", 1, 10_000_000),
    ("timeout", 0.001, 86_400),
    ("seed", -(2**63), 2**63 - 1),
)


def _check_number(name: str, given: object, least: float, most: float) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, int | float) or math.isnan(given):
        raise TypeError(f"{name} is {given!r}, not a number or None")
    if not least <= given <= most:
        raise ValueError(f"{name} is {given!r}: from {least:g} to {most:g}")


def _check_header(name: object, value: object) -> None:
    """Never with the value: it may be a secret."""
    if not isinstance(name, str) or not _HEADER.fullmatch(name):
        raise ValueError(f"extra_headers has {name!r}, which is no name of a header")
    if name.lower() in _OUR_HEADERS:
        raise ValueError(
            f"extra_headers has {name!r}, which is not yours to set; keys are in the environment"
        )
    if not isinstance(value, str) or not value.isprintable() or not value.isascii():
        raise ValueError(f"extra_headers: the value of {name!r} is no text of one line in ASCII")


def _joined(below: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """The names of headers are the same in whatever case."""
    taken = {name.lower() for name in above}
    return {**{n: v for n, v in below.items() if n.lower() not in taken}, **above}


def _plain(name: object) -> str:
    return str(name).replace("_", "").replace("-", "").lower()


_USUAL = ModelSettings()
HANDED_ON = ("effort", "seed", "service_tier", "timeout", "extra_headers", "extra_body")
"""What a child is asked with like its parent, where it says nothing itself and has a model of the same
provider. The rest is about one conversation."""
