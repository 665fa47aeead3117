"""The connections of a server: how long one may take, and which one goes when there are too many.

A client that sends half a request, or takes nothing of an answer, costs a handle and some memory for as long
as it likes; uvicorn waits for it without end. Here every phase of a connection has a bound, and the number of
connections has one, of each address and of all. At the bound the one that is missed least makes room: first
who has been sending the head of a request longest, then a body, then who rests between requests, then who
takes nothing of its answer. Whoever is being answered is never sent away for another. So nobody is locked out
where all share one address, as on loopback: a browser sends its request whole, at once.

Used by `serving`. Reads no request and writes no answer; `guard` and the routes do that.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import struct
import time
from typing import Any, Literal, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from retinue.server.limits import RateLimits

log = logging.getLogger("retinue.server")
Phase = Literal["head", "body", "resting", "answering"]
MISSED_LEAST: tuple[Phase, ...] = ("head", "body", "resting")
LOOKS = 20
"""How often the connections are looked at within the shortest time that one of them has."""
AFTER_THE_BODY = 15.0
"""Seconds more for a body than `guard` gives it: whoever is too slow is to read so."""
AFTER_THE_ANSWER = 5.0
"""Seconds for whoever was answered before all of the body was sent: to read that, and not to be sent more."""
_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"
)


class Connections:
    """Every connection of one server."""

    def __init__(self, limits: RateLimits) -> None:
        self.limits = limits
        self._crowds: dict[str, Crowd] = {}
        self._looking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(len(crowd) for crowd in self._crowds.values())

    def join(self, connection: Connection) -> bool:
        """Whether there is room for one more. Another may have to go for it."""
        crowd = self._crowds.get(connection.address) or Crowd()
        full = len(crowd) >= self.limits.connections_of_one
        if full or len(self) >= self.limits.connections:
            crowded = crowd if full else max(self._crowds.values(), key=len)
            gone = crowded.least_missed()
            if gone is None:
                return False
            gone.drop()
        self._crowds.setdefault(connection.address, crowd).put(connection, "head")
        self._look_later()
        return True

    def move(self, connection: Connection, phase: Phase) -> None:
        """It begins another phase. One that is gone already stays gone."""
        crowd = self._crowds.get(connection.address)
        if crowd is not None and crowd.take(connection):
            crowd.put(connection, phase)

    def leave(self, connection: Connection) -> None:
        crowd = self._crowds.get(connection.address)
        if crowd is not None and crowd.take(connection) and not len(crowd):
            del self._crowds[connection.address]

    def _look_later(self) -> None:
        if self._looking is None and self._crowds:
            shortest = min(self.limits.head_seconds, self.limits.stalled_seconds)
            self._looking = asyncio.get_running_loop().call_later(shortest / LOOKS, self._look)

    def _look(self) -> None:
        self._looking = None
        now = time.monotonic()
        body_seconds = self.limits.body_seconds + AFTER_THE_BODY
        for crowd in list(self._crowds.values()):
            for connection in crowd.since("head", now - self.limits.head_seconds):
                connection.give_up()
            for connection in crowd.since("body", now - body_seconds):
                connection.drop()
            for connection in (*crowd.phases["answering"], *crowd.phases["resting"]):  # it may rest with half
                if connection.stalled(now) > self.limits.stalled_seconds:
                    log.info("a client took nothing for %g s and was disconnected", connection.stalled(now))
                    connection.drop()
        self._look_later()

    def close(self) -> None:
        """Look no more: the server has ended."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None


class Crowd:
    """The connections of one address, by their phase, the longest in it first."""

    def __init__(self) -> None:
        self.phases: dict[Phase, dict[Connection, float]] = {
            "head": {},
            "body": {},
            "resting": {},
            "answering": {},
        }

    def __len__(self) -> int:
        return sum(len(phase) for phase in self.phases.values())

    def put(self, connection: Connection, phase: Phase) -> None:
        connection.phase = phase
        self.phases[phase][connection] = time.monotonic()

    def take(self, connection: Connection) -> bool:
        return self.phases[connection.phase].pop(connection, None) is not None

    def since(self, phase: Phase, before: float) -> list[Connection]:
        """Who has been in a phase since then or longer."""
        found: list[Connection] = []
        for connection, began in self.phases[phase].items():
            if began > before:
                break
            found.append(connection)
        return found

    def least_missed(self) -> Connection | None:
        """Whoever goes when there are too many; None if all are being answered and take their answers."""
        for phase in MISSED_LEAST:
            for connection in self.phases[phase]:
                return connection
        now = time.monotonic()
        stalled = max(self.phases["answering"], key=lambda one: one.stalled(now), default=None)
        return stalled if stalled is not None and stalled.stalled(now) > 0 else None


class Counted:
    """A transport that knows how much of what was written the other side has taken."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._written = transport, 0
        self._socket = transport.get_extra_info("socket")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    def waiting(self) -> int:
        """Bytes that are still here: in this process, and where the system tells it, in its own buffer."""
        return self._transport.get_write_buffer_size() + _unsent(self._socket)

    def taken(self) -> int:
        return self._written - self.waiting()


class Connection(H11Protocol):
    """One connection, with a bound on every phase."""

    def __init__(self, *given: Any, among: Connections, **named: Any) -> None:
        super().__init__(*given, **named)
        self.among = among
        self.phase: Phase = "head"
        self.address = "?"
        self._counted: Counted | None = None
        self._answered = False
        self._answers = 0
        self._taken, self._moved = 0, time.monotonic()

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._counted = Counted(transport)
        super().connection_made(cast("asyncio.Transport", self._counted))
        self.address = neighbourhood(self.client[0] if self.client else "")
        if not self.among.join(self):
            transport.write(_NO_ROOM)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.among.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._settle()

    def on_response_complete(self) -> None:
        self._answered = True
        self._answers += 1
        super().on_response_complete()
        self._settle()
        if self.conn.their_state is h11.SEND_BODY:
            self.loop.call_later(AFTER_THE_ANSWER, self._drop_unfinished, self._answers)

    def _drop_unfinished(self, answers: int) -> None:
        """Nobody waits for the rest of a body that was answered without it."""
        if answers == self._answers and self.conn.their_state is h11.SEND_BODY:
            self.drop()

    def send_400_response(self, msg: str) -> None:
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # it is being answered: there is no other way to say it
            self.drop()

    def _settle(self) -> None:
        phase = self._phase()
        if phase != self.phase:
            self.stalled(time.monotonic())  # a long upload is no time in which an answer was not taken
            self.among.move(self, phase)

    def _phase(self) -> Phase:
        """Where it is now. Both sides are idle before a request and between two."""
        if self.conn.their_state is h11.IDLE:
            return "head" if self.conn.trailing_data[0] or not self._answered else "resting"
        return "body" if self.conn.their_state is h11.SEND_BODY else "answering"

    def stalled(self, now: float) -> float:
        """Seconds for which the other side has taken nothing of what waits for it."""
        if self._counted is None:
            return 0.0
        taken = self._counted.taken()
        if taken != self._taken or not self._counted.waiting():
            self._taken, self._moved = taken, now
        return now - self._moved

    def give_up(self) -> None:
        """Whoever is still sending is told that it took too long, if it hears."""
        if self.conn.our_state is h11.IDLE and not self.transport.is_closing():
            self.transport.write(_TOO_LATE)
            self.transport.close()
        if self.transport.get_write_buffer_size() or not self.transport.is_closing():
            self.drop()
        self.among.leave(self)

    def drop(self) -> None:
        """End it now: what was written and not taken is forgotten."""
        self.among.leave(self)
        self.transport.abort()


def neighbourhood(address: str) -> str:
    """What counts as one address: of IPv6 everybody has a whole network of them."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 6 and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)


def _unsent(given: Any) -> int:
    """Bytes in the system's buffer that the other side has not acknowledged; 0 where it does not tell."""
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        import fcntl
        import termios

        # TIOCOUTQ of a socket is SIOCOUTQ.
        return struct.unpack("i", fcntl.ioctl(given.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0]
    return 0
