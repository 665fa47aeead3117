"""A stand-in for ripgrep where it is not installed. Run as a program, by `ripgrep.py` alone.

Understands just the options that are used there, prints what ripgrep would print, and knows nothing of
ignore files. It is a program so that a pattern that never ends can be killed.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import sys
from collections.abc import Iterator

MOST_BYTES = 20_000_000


def main() -> int:
    options = _options()
    if options.files:
        for path in _walk(options.glob):
            _put(os.fsencode(path) + b"\0")
        return 0
    try:
        pattern = re.compile(options.regexp.encode(), re.IGNORECASE if options.ignore_case else 0)
    except re.error as error:
        sys.stderr.write(f"regex parse error: {error}\n")
        return 2
    found = False
    if options.path == "-":
        found = _search(b"<stdin>", sys.stdin.buffer.read(MOST_BYTES), pattern, options)
    else:
        wanted = [glob.partition(":")[2] for glob in options.type_add]
        for path in _walk(options.glob):
            if wanted and not any(fnmatch.fnmatchcase(os.path.basename(path), glob) for glob in wanted):
                continue
            found |= _search(os.fsencode(path), _content(path), pattern, options)
    return 0 if found else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--ignore-case", action="store_true")
    parser.add_argument("--regexp", default="")
    parser.add_argument("--context", type=int, default=0)
    parser.add_argument("--max-columns", type=int, default=1000)
    parser.add_argument("--glob", action="append", default=[])
    parser.add_argument("--type-add", action="append", default=[])
    parser.add_argument("path")
    return parser.parse_known_args()[0]


def _walk(globs: list[str]) -> Iterator[str]:
    hidden = {glob.removeprefix("!") for glob in globs}
    for folder, folders, names in os.walk("."):
        folders[:] = sorted(name for name in folders if name not in hidden)
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path


def _content(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            return file.read(MOST_BYTES)
    except OSError:
        return b""


def _search(path: bytes, data: bytes, pattern: re.Pattern[bytes], options: argparse.Namespace) -> bool:
    if b"\0" in data[:8192]:
        return False
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    matches = {number: match.start() for number, line in enumerate(lines) if (match := pattern.search(line))}
    around = {n + k for n in matches for k in range(-options.context, options.context + 1)}
    for number in sorted(n for n in around if 0 <= n < len(lines)):
        text = lines[number].rstrip(b"\r\n")
        if len(text) > options.max_columns:
            text = text[: options.max_columns] + b" [... omitted end of long line]"
        place = b"%d-%d-" % (number + 1, offsets[number])
        if number in matches:
            place = b"%d:%d:%d:" % (number + 1, matches[number] + 1, offsets[number])
        _put(path + b"\0" + place + text + b"\n")
    return bool(matches)


def _put(data: bytes) -> None:
    sys.stdout.buffer.write(data)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os._exit(0)
