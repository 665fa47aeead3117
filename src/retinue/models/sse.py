"""Reads server-sent events out of a byte stream, however the network cut it up.

Called by `wire` for every answer of every provider. It keeps only the `data` of an event: all three wire
formats repeat the event's name inside their JSON. It never decodes text and never looks into the JSON.
"""

from __future__ import annotations

from retinue.errors import ModelError

MOST_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class SseParser:
    """Feed it bytes as they come, get the data of the events that are complete."""

    __slots__ = ("_fresh", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._fresh = True

    def feed(self, chunk: bytes) -> list[bytes]:
        text = self._rest + chunk if self._rest else chunk
        if self._fresh:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._rest = text
                return []
            text = text.removeprefix(_BOM)
            self._fresh = False
        held = b""
        if b"\r" in text:
            # A carriage return at the very end may be the first half of CRLF.
            if text.endswith(b"\r"):
                text, held = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = text.split(b"\n\n")
        self._rest = blocks.pop() + held
        if len(self._rest) > MOST_BYTES:
            raise ModelError(
                f"the provider sent {len(self._rest):,} bytes without ending an event, "
                f"more than the {MOST_BYTES:,} that are kept",
                kind="protocol",
            )
        return _data(blocks)

    def finish(self) -> list[bytes]:
        """What is left when the stream ends: some servers leave out the last blank line."""
        rest = self._rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").removeprefix(_BOM)
        self._rest = b""
        return _data(rest.split(b"\n\n"))


def _data(blocks: list[bytes]) -> list[bytes]:
    found: list[bytes] = []
    for block in blocks:
        if block.startswith(b"data: ") and b"\n" not in block:  # what nearly every event looks like
            found.append(block[6:])
            continue
        lines = [
            line[6:] if line.startswith(b"data: ") else line[5:]
            for line in block.split(b"\n")
            if line.startswith(b"data:")
        ]
        if lines:
            found.append(lines[0] if len(lines) == 1 else b"\n".join(lines))
    return found
