"""Numbers as people write them into cells: `1,234.56`, `1.234,56`, `(120)`, `€ 5`, `12 %`.

Used by the tools over spreadsheets. A number is read exactly, and only where there is one way to read it:
`1,234` is a thousand or a little more than one, and which of them is said by the rest of its column or by
whoever asks, never guessed. Nothing here knows what a sheet is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Literal

Mark = Literal[".", ","]
"""What stands before the fraction."""

_CODES = (
    "AUD BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF IDR ILS INR JPY KRW MXN NOK NZD PLN RON RUB SEK SGD THB TRY "
    "USD ZAR"
)
_CURRENCY = rf"(?P<{{}}>[A-Z]{{{{0,3}}}}[$€£¥₹₽₩₺₴₦฿₫₪]|{'|'.join(_CODES.split())})"
_WRITTEN = re.compile(
    rf"(?P<open>\()?(?P<sign>[+-])? ?(?:{_CURRENCY.format('before')} ?)?(?P<sign2>[+-])?"
    r"(?P<digits>\d[\d., ']*?|\.\d+)(?P<exponent>[eE][+-]?\d{1,3})?"
    rf" ?(?:{_CURRENCY.format('after')})?(?P<percent> ?%)?(?P<minus>-)?(?P<close>\))?"
)
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ") | {0x2212: "-", 0x2019: "'"}
_ERROR = re.compile(r"#(?:[A-Z][A-Z0-9/_]*[!?]?)|Err:\d{3}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?")
MOST_CHARACTERS = 60
EXACT = Context(prec=120)
"""For adding and multiplying: more digits than any cell can have."""
MEANING_DIGITS = 15
"""Of a float that was computed: what follows may be noise."""
_ROUND_DIGITS = 12
"""A number that has at most so many once it is rounded was meant to be round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """A number that was written as text. `mark`: what it shows of the writer's habit.

    `other` is what it is if the mark is a comma, where `value` is what it is if it is a point and both are
    possible.
    """

    value: Decimal
    mark: Mark | None = None
    other: Decimal | None = None
    currency: str = ""
    percent: bool = False

    def by(self, mark: Mark | None) -> Decimal | None:
        """The value to somebody who writes this mark; None if that has to be known and is not."""
        if self.other is None:
            return self.value
        return None if mark is None else self.value if mark == "." else self.other


def is_error(text: str) -> bool:
    """What a spreadsheet shows in place of a value that could not be computed."""
    return _ERROR.fullmatch(text.strip()) is not None


def is_date(text: str) -> bool:
    return _DATE.fullmatch(text.strip()) is not None


def read_number(text: str) -> Number | None:
    """A number, however it is written; None for what is none."""
    if len(text) > MOST_CHARACTERS or not any(c.isdigit() for c in text):
        return None
    plain = unicodedata.normalize("NFKC", text.translate(_SPACES)).strip()
    match = _WRITTEN.fullmatch(plain)
    if match is None or (match["open"] is None) != (match["close"] is None):
        return None
    signs = [each for each in (match["sign"], match["sign2"], match["minus"], match["open"]) if each]
    if len(signs) > 1 or (match["before"] and match["after"]):
        return None
    read = _digits(match["digits"].strip(), exponent=match["exponent"] or "")
    if read is None:
        return None
    value, mark, other = read
    factor = Decimal("0.01") if match["percent"] else Decimal(1)
    factor = -factor if signs and signs[0] != "+" else factor
    return Number(
        value=EXACT.multiply(value, factor),
        mark=mark,
        other=None if other is None else EXACT.multiply(other, factor),
        currency=match["before"] or match["after"] or "",
        percent=bool(match["percent"]),
    )


def _digits(text: str, *, exponent: str) -> tuple[Decimal, Mark | None, Decimal | None] | None:
    """Digits with what groups and parts them: the value, the mark that shows, the other possible value."""
    if not text.isascii():
        return None
    for space in " '":
        if space in text:
            head, found, tail = _parted(text)
            if re.fullmatch(rf"\d{{1,3}}(?:{space}\d{{3}})+", head) is None or exponent:
                return None
            return Decimal(f"{head.replace(space, '')}.{tail or 0}"), found, None
    points, commas = text.count("."), text.count(",")
    if exponent or not (points or commas):
        usual = commas == 0 and points <= 1 and not text.endswith(".")
        return (Decimal(text + exponent), "." if points else None, None) if usual else None
    if points and commas:
        mark: Mark = "." if text.rfind(".") > text.rfind(",") else ","
        return _grouped(text, mark)
    sign: Mark = "." if points else ","
    if points + commas > 1:  # a fraction begins only once, so these are thousands
        return _grouped(text, "," if sign == "." else ".")
    head, _, tail = text.partition(sign)
    if not tail.isdigit():
        return None
    as_fraction = Decimal(f"{head or 0}.{tail}")
    if len(tail) != 3 or not 1 <= len(head) <= 3 or head.startswith("0"):
        return as_fraction, sign, None
    as_group = Decimal(head + tail)
    return (as_fraction, None, as_group) if sign == "." else (as_group, None, as_fraction)


def _parted(text: str) -> tuple[str, Mark | None, str]:
    match = re.search(r"[.,](?=\d+$)", text)
    if match is None:
        return text, None, ""
    return text[: match.start()], ("." if match[0] == "." else ","), text[match.end() :]


def _grouped(text: str, mark: Mark) -> tuple[Decimal, Mark, None] | None:
    """A number with thousands apart, by what is not the mark."""
    group = "," if mark == "." else "."
    head, found, tail = text.partition(mark)
    if re.fullmatch(rf"\d{{1,3}}(?:\{group}\d{{3}})+", head) is None or (found and not tail.isdigit()):
        return None
    return Decimal(f"{head.replace(group, '')}.{tail or 0}"), mark, None


def habit(numbers: Iterable[Number]) -> Mark | None:
    """The mark that all of these show; None if none does, or if they differ."""
    marks: set[Mark] = {each.mark for each in numbers if each.mark is not None}
    return marks.pop() if len(marks) == 1 else None


def exactly(value: int | float) -> Decimal:
    """A number as it is written, not as a processor comes near it."""
    return Decimal(value) if isinstance(value, int) else Decimal(repr(value))


def is_long(value: Decimal) -> bool:
    """Whether it has more digits than a float keeps apart."""
    return len(value.as_tuple().digits) > MEANING_DIGITS


def without_noise(value: Decimal) -> Decimal:
    """`0.30000000000000004` is 0.3, as it was computed. What is no round number with noise stays as it is."""
    if not is_long(value):
        return value
    near = EXACT.create_decimal(f"{value:.{MEANING_DIGITS}g}").normalize(EXACT)
    return near if len(near.as_tuple().digits) <= _ROUND_DIGITS else value


def settled(value: int | float) -> Decimal:
    """A number of a spreadsheet as it is written, without the noise of the computation it came from."""
    return exactly(value) if isinstance(value, int) else without_noise(exactly(value))


def shown(value: Decimal) -> str:
    """All its digits, without zeros that say nothing. One that is very large or small has an exponent."""
    if not value:
        return "0"
    value = value.normalize(EXACT)
    if -7 <= value.adjusted() <= 30:
        return f"{value:f}"
    return str(value).replace("E+", "e+").replace("E-", "e-")
