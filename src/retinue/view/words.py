"""Facts as short words: times, tokens, money, arguments; and text from elsewhere made harmless.

Models, tools and web pages write what the terminal shows. `clean` takes away what could move the cursor,
recolour the screen, or make text read otherwise than it is, so nothing shown can forge what a person
approves. `paint` does this to all that it prints, on a terminal and into a pipe, where the next reader may be
a terminal again; views do it where a text is cut or measured. Pure functions, used by every view.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from typing import Any, cast

import msgspec

from retinue import reports
from retinue.types import Outcome
from retinue.web import framing

# Marks that reorder text on the screen: with them a command can read as another one.
_REORDERING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_HARMLESS: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)},
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "�"),
    **{code: f"⟨U+{code:04X}⟩" for code in _REORDERING},
    0x2028: "\n",
    0x2029: "\n",
    **dict.fromkeys(range(0xD800, 0xE000), "�"),
}
_HARMFUL = re.compile("[" + re.escape("".join(map(chr, _HARMLESS))) + "]")


def effort(level: str) -> str:
    """`high effort`, or nothing where a model was told none."""
    return f"{level} effort" if level else ""


def model(name: str) -> str:
    """A model's name for people: a server's only model has none of its own before it is first asked."""
    return f"{name.removesuffix(':')}, its only model" if name.endswith(":") else name


def clean(text: str) -> str:
    """Text that only prints: control characters are shown, not obeyed."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    return text.translate(_HARMLESS) if _HARMFUL.search(text) else text


def escaped(text: str) -> str:
    """JSON that only prints, and means the same: what `clean` would change is written by its number."""
    return _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text) if _HARMFUL.search(text) else text


def one_line(text: str, most: int = 200) -> str:
    """The text in one line of at most that many characters."""
    flat = clean(" ".join(text[: most * 4].split()))
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def result(text: str) -> str:
    """What a call gave back, for people: without the marks around reports and strangers' words, which are for
    the model that reads on."""
    return framing.unreported(framing.unframed(text))


def failure(text: str) -> str:
    """Why a call failed. Of a result in JSON, as calls that delegate have it, the error of the first that has
    one."""
    found: _Delegated | None = None
    if text.startswith("{"):
        with suppress(msgspec.DecodeError, RecursionError):
            found = msgspec.json.decode(text, type=_Delegated)
    for one in () if found is None else (found, *found.results):
        if one.error and one.error != reports.IN_REPORT:
            return one.error
        if one.error and one.report:
            return result(one.report)
    return result(text)


class _Row(msgspec.Struct, frozen=True):
    error: str | None = None
    report: str | None = None


class _Delegated(_Row, frozen=True):
    results: tuple[_Row, ...] = ()


def duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} m"


def count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def calls(number: int, failed: int) -> str:
    """Tool calls, and how many of them failed."""
    return count(number, "tool call") + (f" ({failed} failed)" if failed else "")


def outcome(outcome: Outcome, denied: int) -> str:
    """How a run stands, and how much a rule denied it, which makes it no less complete."""
    return f"{outcome}, {denied} denied" if denied else outcome


def tokens(number: int) -> str:
    if number < 1000:
        return str(number)
    if number < 999_500:
        return f"{number / 1000:.1f}k" if number < 99_950 else f"{number / 1000:.0f}k"
    return f"{number / 1_000_000:.1f}M"


def money(cost: float | None) -> str:
    """In US dollars, with as many digits as it takes to see something."""
    if cost is None:
        return "cost unknown"
    if cost == 0:
        return "$0"
    if cost < 0.0001:
        return "<$0.0001"
    return f"${cost:.4f}" if cost < 0.01 else f"${cost:.3f}" if cost < 1 else f"${cost:,.2f}"


def size(number: int) -> str:
    value = float(number)
    for unit in ("bytes", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def ago(at: float, now: float | None = None) -> str:
    past = max(0.0, (time.time() if now is None else now) - at)
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h"), (5_184_000, 86400, "d")):
        if past < limit:
            return f"{past / unit:.0f} {name} ago"
    return time.strftime("%Y-%m-%d", time.localtime(at))


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def at_moment(at: float, now: float) -> str:
    """A time of day, with the day if that is another one."""
    same = time.localtime(at)[:3] == time.localtime(now)[:3]
    return moment(at)[11 if same else 0 :]


def parked(until: float, now: float) -> str:
    """Until when a limit is waited for."""
    return f"waits for the provider's limit to reset until {at_moment(until, now)}"


# What says most about a call, in the order it is looked for.
_TELLING = ("command", "pattern", "query", "path", "file_path", "url", "label", "name", "agent", "agent_id")
_TELLING_LAST = ("prompt", "task_prompt", "task", "question", "target", "expression", "code")


def arguments(raw: str, most: int = 120) -> str:
    """The arguments of a call in a few words."""
    try:
        value: Any = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        return one_line(raw, most)
    if not isinstance(value, dict):
        return one_line(raw, most)
    given = cast("dict[str, Any]", value)
    for name in (*_TELLING, *_TELLING_LAST):
        if isinstance(given.get(name), str) and given[name].strip():
            return one_line(given[name] + _aside(given, name), most)
    parts = [f"{name}={_plain(inner)}" for name, inner in given.items() if inner not in (None, "", [], {})]
    return one_line(" ".join(parts), most)


def _aside(given: dict[str, Any], told: str) -> str:
    """What goes with the telling argument: where, or which lines."""
    if told in ("pattern", "query"):
        where = given.get("path") or given.get("scope") or given.get("glob")
        return f" in {where}" if isinstance(where, str) and where not in (".", "") else ""
    if told in ("path", "file_path"):
        first, number = given.get("offset") or given.get("start"), given.get("limit") or given.get("end")
        if isinstance(first, int):
            return f":{first}" + (f"+{number}" if isinstance(number, int) else "")
    return ""


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
