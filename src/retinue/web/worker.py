"""The child process that turns hostile bytes into text: `python -m retinue.web.worker`.

`pool` starts it and talks to it over its standard input and output: each message is eight bytes of length
and a MessagePack body. It has little memory, may write no files, knows no keys, and dies with its parent,
whose end closes its input.
"""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

import msgspec
from msgspec import Struct

from retinue.web.extraction import Extracted, ExtractJob, extract
from retinue.web.page import Job, Page, convert
from retinue.web.robots import RobotsAnswer, RobotsJob, may_fetch

AnyJob = Job | ExtractJob | RobotsJob


class ConversionFailed(Struct, frozen=True, kw_only=True, tag="failed"):
    """`reason` is a sentence about the page, not about this program."""

    reason: str


AnyAnswer = Page | Extracted | RobotsAnswer | ConversionFailed

MEMORY = 1 << 30
CPU_SECONDS = 3600
encoder = msgspec.msgpack.Encoder()
job_decoder: msgspec.msgpack.Decoder[AnyJob] = msgspec.msgpack.Decoder(AnyJob)
answer_decoder: msgspec.msgpack.Decoder[AnyAnswer] = msgspec.msgpack.Decoder(AnyAnswer)


def perform(job: AnyJob) -> AnyAnswer:
    """Never raises."""
    try:
        match job:
            case Job():
                return convert(job)
            case ExtractJob():
                return extract(job)
            case RobotsJob():
                return may_fetch(job)
    except ImportError as error:
        return ConversionFailed(
            reason=f"reading it needs the package {error.name}: pip install 'retinue[web]'"
        )
    except MemoryError:
        return ConversionFailed(reason="it needs too much memory to be read")
    except RecursionError:
        return ConversionFailed(reason="it is nested too deeply to be read")
    except Exception as error:
        # The parsers' own errors are of many kinds, and a bad page must not end the worker.
        return ConversionFailed(reason=f"it cannot be read ({type(error).__name__})")


def limit() -> None:
    """As little as parsing needs. Where the platform has no such limits, the time limit of `pool` remains."""
    try:
        import resource
    except ImportError:
        return
    for what, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, CPU_SECONDS),
    ):
        try:
            resource.setrlimit(what, (most, most))
        except (ValueError, OSError):
            continue


def encoded(answer: AnyAnswer) -> bytes:
    try:
        return encoder.encode(answer)
    except UnicodeEncodeError:
        return encoder.encode(ConversionFailed(reason="it contains characters that are none"))


def serve(read: BinaryIO, write: BinaryIO) -> None:
    while True:
        size = read.read(8)
        if len(size) < 8:
            return
        answer = encoded(perform(job_decoder.decode(read.read(int.from_bytes(size, "big")))))
        write.write(len(answer).to_bytes(8, "big") + answer)
        write.flush()


def main() -> None:
    # Libraries that print must not print into the conversation.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    limit()
    serve(sys.stdin.buffer, out)


if __name__ == "__main__":
    main()
