"""One request to a collector, and when it is made again. Blocks: called in a thread of its own, or at the
command line."""

from __future__ import annotations

import gzip
import http.client
import random
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from retinue.telemetry.environment import Destination
from retinue.telemetry.otlp import CONTENT_TYPES

_AGAIN = (429, 502, 503, 504)
_FIRST_WAIT = 0.5


class NotTaken(Exception):
    """A collector did not take what was sent. Its text says why."""


def post(destination: Destination, body: bytes, *, wait: Callable[[float], bool] | None = None) -> None:
    """Send a request, again where that may help, within the destination's timeout. Raises `NotTaken`.

    `wait` waits that many seconds before another try, and says whether to give up.
    """
    deadline, pause = time.monotonic() + destination.timeout, _FIRST_WAIT
    while True:
        left = deadline - time.monotonic()
        again, why, asked = _tried(destination, body, max(left, 0.05))
        if not why:
            return
        pause = pause if asked is None else asked
        if not again or time.monotonic() + pause >= deadline:
            raise NotTaken(why)
        if (wait or _slept)(pause * random.uniform(0.8, 1.2)):  # noqa: S311 - so that many do not come at once
            raise NotTaken(why)
        pause *= 2


def _tried(destination: Destination, body: bytes, timeout: float) -> tuple[bool, str, float | None]:
    """Whether another try may help, what went wrong, and how long the collector asks to wait."""
    try:
        request, tls = _request(destination, body), _tls(destination)
        with urllib.request.urlopen(request, timeout=timeout, context=tls) as reply:  # noqa: S310 - see environment
            reply.read(65_536)
        return False, "", None
    except urllib.error.HTTPError as error:
        error.close()
        told = error.headers.get("Retry-After", "")
        return error.code in _AGAIN, f"status {error.code}", float(told) if told.isdigit() else None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return not isinstance(error, ValueError), str(reason) or type(error).__name__, None


def _request(destination: Destination, body: bytes) -> urllib.request.Request:
    headers = {
        "User-Agent": "retinue",
        **destination.headers,
        "Content-Type": CONTENT_TYPES[destination.protocol],
    }
    if destination.gzip:
        body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
    return urllib.request.Request(destination.url, data=body, headers=headers, method="POST")  # noqa: S310


def _tls(destination: Destination) -> ssl.SSLContext | None:
    if not destination.url.startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=destination.certificate)
    if destination.client_certificate:
        context.load_cert_chain(destination.client_certificate, destination.client_key)
    return context


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return False
