"""What a supervisor tells Retinue about its command: short frames over a socket.

A frame is a letter, the length of its payload in four bytes, and the payload. What is read from them is held
to be hostile: a command that is not sealed runs with the rights of its supervisor.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_STARTED = b"E"
"""The command does not run: the number of an error of the system."""
NOT_SEALED = b"F"
"""The command does not run: why it cannot be sealed."""
BROKEN = b"B"
"""The command was ended, since the seal does not hold any more: why."""
EXITED = b"X"
"""The shell has ended, with this code, negative for a signal. What it started may still run."""
NOTE = b"N"
"""What was put right after the command: in words."""
GONE = b"G"
"""Nothing that it started runs any more."""

END = b"e"
"""What Retinue tells a supervisor: end it all, with a moment to clean up."""
AT_ONCE = b"!"
"""And this: end it all at once. So does closing the socket, after which nothing can be told any more."""

MOST = 65536


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(payload)) + payload


def code(number: int) -> bytes:
    return struct.pack("!i", number)


def number(payload: bytes) -> int:
    return int(struct.unpack("!i", payload)[0]) if len(payload) == 4 else 1


class Frames:
    """Takes bytes as they arrive and gives the frames that are complete."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Raises ValueError for what is no frame."""
        self._held += data
        while len(self._held) >= 5:
            (length,) = struct.unpack("!I", self._held[1:5])
            if length > MOST:
                raise ValueError(f"a frame of {length} bytes")
            if len(self._held) < 5 + length:
                return
            kind, payload = self._held[:1], self._held[5 : 5 + length]
            self._held = self._held[5 + length :]
            yield kind, payload
