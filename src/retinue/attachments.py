"""Files that a person attaches to a question: text, PDF, pictures and spreadsheets.

Called by the app before a run starts. `attach` reads one file and `render` turns all of them into prompt text
and pictures. What can be hostile inside (PDF, spreadsheets) is parsed in a child process with limits on time
and memory (`attachment_parsers`), never in this one. A file that cannot be used is a `ConfigError` that says
why and what to do; nothing is left out silently.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from retinue.attachment_parsers import Parsed, ParsedPages, ParserFailed, ParserLimits, Tables
from retinue.errors import ConfigError
from retinue.reading import Unreadable, read_named, real_path
from retinue.tools.sheet_doubts import doubts, remarks
from retinue.tools.sheet_table import as_table, column_letter, table_text
from retinue.tools.sheets import Workbook
from retinue.types import MAX_IMAGE, Image, image_type

MAX_FILE = 20_000_000
MAX_TEXT = 100_000
_CONTROLS = dict.fromkeys({*range(32)} - {9, 10, 12, 13})
_MAX_PARSED = 64_000_000
_SAMPLE_ROWS = 5
_SAMPLE_COLUMNS = 30

DEFAULT = ParserLimits()

Kind = Literal["text", "pdf", "image", "sheet"]

_SHEETS = {".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"}
_OTHERS = {
    ".doc": "a Word document",
    ".docx": "a Word document",
    ".odt": "a text document",
    ".ppt": "a presentation",
    ".pptx": "a presentation",
    ".odp": "a presentation",
    ".epub": "a book",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachment:
    """One file, ready for a prompt. `note` says what was left out."""

    name: str
    kind: Kind
    text: str = ""
    note: str = ""
    image: Image | None = None
    workbook: Workbook | None = None


Attached = Attachment | Image | bytes | str | Path
"""How a program attaches something: a file by its path, a picture, the bytes of one or its URL, or what
`attach` returns."""


async def attach(path: str | Path, *, project: Path | None = None) -> Attachment:
    """Read a file from disk. One that is named as a file of the `project` has to be in there really: a link
    that came with a repository must not pick another file than the one a person sees."""
    name = Path(path).name
    data = await asyncio.to_thread(_read, Path(path), project)
    return await attach_bytes(name, data)


async def attach_bytes(name: str, data: bytes) -> Attachment:
    """A file whose content is already here, as from an upload."""
    if len(data) > MAX_FILE:
        raise _problem(name, f"has {len(data):,} bytes, at most {MAX_FILE:,} can be attached")
    suffix = Path(name).suffix.lower()
    if image_type(data) is not None:
        return _image(name, data)
    if data.startswith(b"%PDF-") or (suffix == ".pdf" and b"%PDF-" in data[:1024]):
        return await _pdf(name, data)
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")) or suffix in _SHEETS:
        if suffix not in _SHEETS:
            what = _OTHERS.get(suffix, "an archive or a format that cannot be read")
            raise _problem(name, f"is {what}", "save it as PDF, text or .xlsx and attach that")
        return await _sheet(name, data)
    text = await asyncio.to_thread(decode, name, data)
    if suffix in (".csv", ".tsv", ".tab"):
        return await _sheet(name, text.encode())
    return _text(name, text)


def render(attachments: Sequence[Attachment], *, most: int | None = None) -> tuple[str, tuple[Image, ...]]:
    """The prompt section of all attachments, and the pictures that go beside it.

    All texts together have at most so many characters: the longest ones are cut, and say so.
    """
    parts: list[str] = []
    for each in attachments if most is None else _fitted(attachments, most):
        inside = re.sub(r"<(\s*(?:/\s*)?attachment)", r"<\\\1", each.text, flags=re.IGNORECASE)
        inside = inside or ("(the picture itself is attached)" if each.kind == "image" else "(empty)")
        note = f"\n[{each.note}]" if each.note else ""
        name = "".join(c if c.isprintable() and c not in '"<>' else "_" for c in each.name[:255])
        parts.append(f'<attachment name="{name}" kind="{each.kind}">\n{inside}{note}\n</attachment>')
    return "\n\n".join(parts), tuple(each.image for each in attachments if each.image is not None)


def _fitted(attachments: Sequence[Attachment], most: int) -> list[Attachment]:
    """Cut the longest until all fit: who needs less than an even share leaves the rest to the others."""
    share = left = most
    sizes = sorted(len(each.text) for each in attachments)
    for number, size in enumerate(sizes):
        even = left // (len(sizes) - number)
        if size > even:
            share = even
            break
        left -= size
    fitted: list[Attachment] = []
    for each in attachments:
        if len(each.text) > share:
            cut = f"only the first {share:,} of {len(each.text):,} characters are here"
            note = "; ".join(filter(None, (each.note, f"{cut}, see context.attachment_tokens")))
            each = replace(each, text=each.text[:share], note=note)
        fitted.append(each)
    return fitted


def decode(name: str, data: bytes) -> str:
    """Bytes as text, by their byte order mark, as UTF-8, or by the best guess."""
    for mark, encoding in (
        (b"\xef\xbb\xbf", "utf-8-sig"),
        (b"\xff\xfe\x00\x00", "utf-32"),
        (b"\x00\x00\xfe\xff", "utf-32"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    if b"\x00" in data[:8192]:
        wide = _wide(data)
        if wide is not None:
            return wide
        raise _problem(
            name,
            "is not text, nor a kind of file that can be read",
            "attach text, PDF, a picture or a spreadsheet",
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    if _is_western(data):
        return data.decode("cp1252")
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return data.decode("cp1252", errors="replace")
    best = from_bytes(data[:200_000]).best()
    return data.decode("cp1252" if best is None else best.encoding, errors="replace")


_WESTERN_LETTERS = "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜŒŸßàáâãäåæçèéêëìíîïñòóôõöøùúûüœÿŠšŽž"
_NOT_WESTERN = re.compile(
    rf"[^\x00-\x7f{_WESTERN_LETTERS}\u00a0-¿€‚„…†‡‰‹‘’“”•–—™›]"  # þ, ð, ý and the like: Turkish, Czech
    rf"|[A-Za-z{_WESTERN_LETTERS}][\u00a1-\u00b1\u00b3\u00b4\u00b6\u00b8\u00b9\u00bb-¿€‚„†‡‰•™‹›‘“”]"
    rf"[a-z{_WESTERN_LETTERS}]"  # a sign inside of a word
    rf"|[{_WESTERN_LETTERS}]{{4}}"  # a word of letters that are few in Western words
)


def _is_western(data: bytes) -> bool:
    """Whether bytes are words in the encoding of Western Windows. By guess it is by far the most frequent,
    but a guess at a short text may be any of its neighbours."""
    try:
        return _NOT_WESTERN.search(data.decode("cp1252")) is None
    except UnicodeDecodeError:
        return False


def _wide(data: bytes) -> str | None:
    """Text in UTF-16 without a mark: every other byte is nearly always zero, in Western languages."""
    start = data[:8192]
    for encoding, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if len(data) % 2 == 0 and zeros.count(0) * 10 >= len(zeros) * 9 and start.count(0) < len(start) * 0.6:
            with contextlib.suppress(UnicodeDecodeError):
                text = data.decode(encoding)
                return text if text[:4096].translate(_CONTROLS) == text[:4096] else None
    return None


def _problem(name: str, what: str, fix: str | None = None) -> ConfigError:
    return ConfigError(f"the attachment {what}", file=name, fix=fix)


def _read(path: Path, project: Path | None) -> bytes:
    try:
        return read_named(path, MAX_FILE, project=project)
    except FileNotFoundError:
        raise _problem(str(path), "does not exist") from None
    except OSError as error:
        raise _unread(path, error) from None


def _unread(path: Path, error: OSError) -> ConfigError:
    if error.errno == errno.EISDIR:
        return _problem(str(path), "is a folder", "attach files, one by one")
    if error.errno == errno.EFBIG:
        with contextlib.suppress(OSError):
            size = f"has {os.stat(path).st_size:,} bytes, "
            return _problem(str(path), f"{size}at most {MAX_FILE:,} can be attached")
    if error.errno == errno.EXDEV:
        leads = f"if you mean it, attach {real_path(path)}"
        return _problem(str(path), "leads out of the project by a link", leads)
    what = error.why if isinstance(error, Unreadable) else f"cannot be opened: {error.strerror}"
    return _problem(str(path), what)


def attach_image(image: Image) -> Attachment:
    """A picture that is at hand already, or on the web."""
    image.checked()
    return Attachment(name=image.url or "picture", kind="image", image=image)


def _image(name: str, data: bytes) -> Attachment:
    if len(data) > MAX_IMAGE:
        raise _problem(
            name,
            f"has {len(data):,} bytes, a picture may have {MAX_IMAGE:,}",
            "make it smaller and attach it again",
        )
    return Attachment(name=name, kind="image", image=Image.from_bytes(data))


def _text(name: str, text: str, kind: Kind = "text", note: str = "") -> Attachment:
    if len(text) > MAX_TEXT:
        cut = f"only the first {MAX_TEXT:,} of {len(text):,} characters are here"
        return Attachment(
            name=name, kind=kind, text=text[:MAX_TEXT], note="; ".join(filter(None, (note, cut)))
        )
    return Attachment(name=name, kind=kind, text=text, note=note)


async def _pdf(name: str, data: bytes) -> Attachment:
    parsed = await _parse(name, "pdf", data)
    if not isinstance(parsed, ParsedPages):
        raise _problem(name, "could not be read as PDF")
    if not any(page.strip() for page in parsed.pages):
        raise _problem(
            name, f"has {parsed.total} pages without text, perhaps scans", "attach the pages as pictures"
        )
    text = "\n\n".join(
        f"--- page {number} ---\n{page.strip()}" for number, page in enumerate(parsed.pages, 1)
    )
    left_out = parsed.total - len(parsed.pages)
    note = f"{left_out} of {parsed.total} pages are not here" if left_out else ""
    return _text(name, text, "pdf", note)


async def _sheet(name: str, data: bytes) -> Attachment:
    kind = "csv" if Path(name).suffix.lower() in (".csv", ".tsv", ".tab") else "workbook"
    parsed = await _parse(name, kind, data)
    if not isinstance(parsed, Tables):
        raise _problem(name, "could not be read as a spreadsheet")
    workbook = Workbook(name=name, sheets=parsed.sheets)
    text = await asyncio.to_thread(describe_workbook, workbook)
    return Attachment(name=name, kind="sheet", text=text, workbook=workbook)


def describe_workbook(workbook: Workbook) -> str:
    """Sheets, sizes, columns and first rows: what the model is shown of a workbook."""
    parts: list[str] = []
    for sheet in workbook.sheets:
        table = as_table(sheet)
        columns = [column_letter(i) for i in range(len(table.columns))][:_SAMPLE_COLUMNS]
        head = f"Sheet {sheet.name!r}: {sheet.total:,} rows, {len(table.columns)} columns"
        if not sheet.is_whole:
            head += f" (only the first {len(sheet.rows):,} rows could be read, so there are no totals)"
        if sheet.uncomputed:
            head += f" ({len(sheet.uncomputed):,} formulas without a value: nobody has computed them yet)"
        if sheet.hidden:
            head += f" ({len(sheet.hidden):,} rows are hidden in the file)"
        head += "".join(f" ({each})" for each in (*doubts(sheet), *remarks(sheet, range(len(table.columns)))))
        if not table.columns:
            parts.append(head if sheet.total else f"{head}, empty")
            continue
        first = sheet.rows[table.header : table.header + 1 + _SAMPLE_ROWS]
        rows = [
            (number, (row + [None] * len(columns))[: len(columns)])
            for number, row in enumerate(first, table.header + 1)
        ]
        if len(table.columns) > len(columns):
            head += f" (the first {len(columns)} are shown)"
        parts.append(f"{head}\n{table_text(columns, rows)}")
    return "\n\n".join(parts)


async def _parse(name: str, kind: str, data: bytes) -> ParsedPages | Tables:
    """Parse in a child process of its own, which a hostile file may hang, fill up or crash."""
    limits = DEFAULT
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-I",
            "-m",
            "retinue.attachment_parsers",
            kind,
            msgspec.json.encode(limits).decode(),
        ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(limits.seconds + 5):
            output = await _exchange(process, data)
    except TimeoutError:
        raise _problem(
            name, f"took more than {limits.seconds:g} s to read", "attach a smaller part of it"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await _drain(process)  # its end is only told when its output has been read
            await process.wait()
    if output is None:
        raise _problem(
            name,
            f"holds more than {_MAX_PARSED // 1_000_000} MB once it is read",
            "attach a smaller part of it",
        )
    if process.returncode != 0 or not output:
        raise _problem(
            name,
            f"is damaged, or needs more than {limits.memory // 1_000_000} MB or {limits.seconds:g} s to read",
            "attach a smaller part of it",
        )
    parsed = await asyncio.to_thread(msgspec.json.decode, output, type=Parsed)
    if isinstance(parsed, ParserFailed):
        raise _problem(name, parsed.what, parsed.fix or None)
    return parsed


async def _exchange(process: asyncio.subprocess.Process, data: bytes) -> bytes | None:
    """What the child makes of the data, read piece by piece; None as soon as it is more than is taken."""
    assert process.stdin is not None
    assert process.stdout is not None
    feeding = asyncio.create_task(_feed(process.stdin, data))
    output = bytearray()
    try:
        while piece := await process.stdout.read(1 << 18):
            output += piece
            if len(output) > _MAX_PARSED:
                return None
        await process.wait()
        return bytes(output)
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(1 << 18):
        pass


async def _feed(into: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may end before it has read all
        into.write(data)
        await into.drain()
        into.close()
