#!/usr/bin/env python3
"""Hold requirements.lock against the package index: scripts/audit.py [--seconds N] [--lock FILE]

For every locked package: the index still has every locked file under its hash and for the locked version,
none is yanked, and the project is active (neither archived, deprecated nor quarantined). Where the index also
says which versions have known vulnerabilities, none of them applies. `scripts/test.sh` calls it.

The index is the one that uv or pip is configured with. Findings are printed as a table and exit with 1. What
could not be asked is said, and is no finding: without a network it exits with 0. It downloads no package,
changes nothing, and never prints the password of an index.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import html
import json
import os
import re
import ssl
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parent.parent
AT_ONCE = 16
ABSENT = "not in the index"
MOST_BYTES = 64_000_000  # one page of the index; the largest of ours has 5 MB
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


class NotAudited(Exception):
    """The index could not be asked. Says nothing about the packages."""


@dataclass(frozen=True, kw_only=True)
class Locked:
    """One entry of the lock."""

    name: str
    version: str
    hashes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class File:
    """A file as the index lists it. `yanked` is the reason, which may be empty."""

    name: str
    yanked: str | None = None


@dataclass(frozen=True, kw_only=True)
class Project:
    """A page of the index: files by their sha256, and the state of the project."""

    files: dict[str, File]
    status: str = "active"
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Index:
    """Where to ask, without the password, and how."""

    url: str
    auth: aiohttp.BasicAuth | None = None
    certificates: str | None = None


@dataclass(kw_only=True)
class Audit:
    """What came of it: findings as (name, version, what), who was asked about, and who not and why."""

    findings: list[tuple[str, str, str]] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    vulnerabilities: bool = False


# ---- what is locked


def read_lock(text: str) -> list[Locked]:
    """Every entry, for every system: the markers are not asked."""
    found: list[Locked] = []
    for line in re.sub(r" *\\\n *", " ", text).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            words, *hashes = line.split(" --hash=sha256:")
            wanted = Requirement(words)
            version = str(wanted.specifier).removeprefix("==")
            name = canonicalize_name(wanted.name)
            found.append(Locked(name=name, version=version, hashes=tuple(h.strip() for h in hashes)))
    return found


# ---- which index


def configured_index() -> Index:
    """As uv is told by the environment, else as pip is configured, else pip's own default."""
    url = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    pip = {} if url else pip_settings()
    url = url or pip.get("index-url")
    if url is None and (pip.get("no-index", "").lower() in ("1", "true", "yes", "on")):
        raise NotAudited("pip is configured with no index")
    url = url or default_index()
    url = url.split("=", 1)[1] if re.match(r"[\w-]+=", url) else url  # uv takes NAME=URL
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotAudited("the configured index is no address of a server")
    auth = (
        aiohttp.BasicAuth(unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    )
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    return Index(url=plain.geturl().rstrip("/"), auth=auth, certificates=pip.get("cert"))


def pip_settings() -> dict[str, str]:
    """The settings that say which index and how: the environment first, then those of `install`."""
    found: dict[str, str] = {}
    listed = dict(re.findall(r"^(\S+?)='(.*)'$", run_pip("config", "list"), re.M))
    for key in ("index-url", "cert", "no-index"):
        for place in (":env:", "install", "global"):
            if value := listed.get(f"{place}.{key}"):
                found.setdefault(key, value)
    return found


def default_index() -> str:
    """pip says in its help which one it takes."""
    told = re.search(r"\(default\s+(https?://[^\s)]+)\)", run_pip("help", "install"))
    if told is None:
        raise NotAudited("no index is configured, and pip names none")
    return told[1]


def run_pip(*arguments: str) -> str:
    """What pip prints. The venv of the project has none, so any that is there is asked."""
    for command in (["pip"], ["python3", "-m", "pip"]):
        try:
            done = subprocess.run(
                [*command, *arguments],
                capture_output=True,
                text=True,
                check=True,
                timeout=15,
                env={**os.environ, "COLUMNS": "400"},
            )
            return done.stdout
        except (OSError, subprocess.SubprocessError):
            continue
    return ""


# ---- what the index says


def read_page(kind: str, text: str) -> Project:
    """A page of the simple API, as JSON (PEP 691) or HTML (PEP 503), with PEP 592 and PEP 792."""
    try:
        return from_json(json.loads(text)) if kind.endswith("json") else from_html(text)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotAudited(f"the index answered something that cannot be read: {error!r}") from None


def from_json(page: Any) -> Project:
    files = {
        file["hashes"]["sha256"]: File(name=file["filename"], yanked=reason_of(file.get("yanked", False)))
        for file in page["files"]
        if "sha256" in file["hashes"]
    }
    status = page.get("project-status") or {}
    return Project(
        files=files, status=str(status.get("status", "active")), reason=str(status.get("reason") or "")
    )


def reason_of(yanked: object) -> str | None:
    if yanked is False or yanked is None:
        return None
    return yanked if isinstance(yanked, str) else ""


def from_html(text: str) -> Project:
    files: dict[str, File] = {}
    for attributes, name in re.findall(r"<a\s([^>]*)>([^<]*)</a>", text, re.I):
        digest = re.search(r"#sha256=([0-9a-f]{64})", attributes)
        if digest:
            yanked = re.search(r"""\bdata-yanked(?:=(?:"([^"]*)"|'([^']*)'))?""", attributes)
            why = html.unescape(yanked[1] or yanked[2] or "") if yanked else None
            files[digest[1]] = File(name=html.unescape(name).strip(), yanked=why)
    if not files:
        raise ValueError("a page without a file that has a sha256")
    said = dict(re.findall(r"""<meta\s+name="pypi:([\w-]+)"\s+content="([^"]*)""", text))
    return Project(
        files=files,
        status=said.get("project-status", "active"),
        reason=html.unescape(said.get("project-status-reason", "")),
    )


def judge(locked: Locked, project: Project | None) -> list[str]:
    """What is wrong with one entry of the lock."""
    if project is None:
        return [ABSENT]
    found: list[str] = []
    if project.status != "active":
        found.append(f"the project is {project.status}: {project.reason or 'no reason given'}")
    known = [project.files[digest] for digest in locked.hashes if digest in project.files]
    if missing := len(locked.hashes) - len(known):
        example = next(digest for digest in locked.hashes if digest not in project.files)
        found.append(f"{missing} of {len(locked.hashes)} locked hashes are of no file there, e.g. {example}")
    if others := [file.name for file in known if not is_of(file.name, locked)]:
        found.append(f"a locked hash is of another version: {others[0]}")
    if yanked := [file for file in known if file.yanked is not None]:
        why = next((file.yanked for file in yanked if file.yanked), "no reason given")
        found.append(f"yanked ({len(yanked)} of {len(known)} files): {why}")
    return found


def is_of(file: str, locked: Locked) -> bool:
    try:
        name, version, *_ = (
            parse_wheel_filename(file) if file.endswith(".whl") else parse_sdist_filename(file)
        )
        return name == locked.name and version == Version(locked.version)
    except (ValueError, InvalidVersion):
        return False


# ---- asking


async def fetch(session: aiohttp.ClientSession, index: Index, url: str) -> tuple[str, str] | None:
    """The kind and the text of a page; None where there is none. Never more than MOST_BYTES."""
    try:
        async with session.get(url, headers={"Accept": ACCEPT}, auth=index.auth) as response:
            if response.status in (404, 410):
                return None
            if response.status != 200:
                raise NotAudited(f"the index answered HTTP {response.status}")
            body = bytearray()
            async for piece in response.content.iter_chunked(1 << 16):
                body += piece
                if len(body) > MOST_BYTES:
                    raise NotAudited(f"the index answered more than {MOST_BYTES:,} bytes")
            return response.content_type, body.decode("utf-8", "replace")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NotAudited(f"the index cannot be reached: {type(error).__name__}: {error}") from None


async def look_up(session: aiohttp.ClientSession, index: Index, locked: Locked) -> list[str] | None:
    """The known vulnerabilities of one version; None where the index has no such data."""
    if not index.url.endswith("/simple"):
        return None
    url = f"{index.url.removesuffix('/simple')}/pypi/{locked.name}/{locked.version}/json"
    answer = await fetch(session, index, url)
    if answer is None or not answer[0].endswith("json"):
        return None
    try:
        known = json.loads(answer[1])["vulnerabilities"]
        return [
            f"vulnerable: {one['id']}, mended in {', '.join(one.get('fixed_in') or ['no version'])}"
            for one in known
            if not one.get("withdrawn")
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


async def audit_one(
    session: aiohttp.ClientSession, index: Index, entries: list[Locked], audit: Audit
) -> None:
    """All entries of one name, into `audit`."""
    name = entries[0].name
    try:
        page = await fetch(session, index, f"{index.url}/{name}/")
        project = read_page(*page) if page else None
        for one in entries:
            audit.findings += [(name, one.version, what) for what in judge(one, project)]
        for one in entries if audit.vulnerabilities else ():
            known = await look_up(session, index, one) or ()
            audit.findings += [(name, one.version, what) for what in known]
        audit.done.add(name)
    except NotAudited as error:
        audit.failed[name] = str(error)


async def audit_all(index: Index, locked: list[Locked], seconds: float) -> Audit:
    """Everything, or as much as can be asked in that time."""
    by_name: dict[str, list[Locked]] = {}
    for one in locked:
        by_name.setdefault(one.name, []).append(one)
    audit, late = Audit(), f"the index took longer than {seconds:g} s"
    connector = aiohttp.TCPConnector(limit=AT_ONCE, ssl=ssl.create_default_context(cafile=index.certificates))
    patience = aiohttp.ClientTimeout(total=None, sock_connect=5)
    try:
        async with (
            asyncio.timeout(seconds),
            aiohttp.ClientSession(connector=connector, timeout=patience, trust_env=True) as session,
        ):
            # The first one shows whether there is an index at all, and what it knows.
            await fetch(session, index, f"{index.url}/{locked[0].name}/")
            with contextlib.suppress(NotAudited):
                audit.vulnerabilities = await look_up(session, index, locked[0]) is not None
            await asyncio.gather(*(audit_one(session, index, entries, audit) for entries in by_name.values()))
    except TimeoutError:
        audit.failed |= {name: late for name in by_name if name not in audit.done}
    return audit


# ---- telling


def printable(text: str) -> str:
    """What others wrote, on one line, without control codes."""
    return "".join(c if c.isprintable() else "·" for c in text)[:300]


def tell(audit: Audit, locked: list[Locked]) -> int:
    """Print what was found; the exit code."""
    total = len({one.name for one in locked})
    absent = {name for name, _, what in audit.findings if what == ABSENT}
    if len(absent) == total > 1:
        print("audit: not audited: the configured index has none of the packages")
        return 0
    if audit.failed:
        why = printable(next(iter(audit.failed.values())))
        print(f"audit: not audited: {len(audit.failed)} of {total} packages: {why}")
    hashes = sum(len(one.hashes) for one in locked if one.name in audit.done)
    found = f"{len(audit.findings)} findings" if len(audit.findings) != 1 else "1 finding"
    print(f"audit: {len(audit.done)} packages, {hashes:,} hashes held against the index: {found}")
    if not audit.vulnerabilities:
        print("audit: known vulnerabilities: not looked up, the index says nothing about them")
    widths = [max((len(row[i]) for row in audit.findings), default=0) for i in (0, 1)]
    for name, version, what in sorted(audit.findings):
        print(f"  {name.ljust(widths[0])}  {version.ljust(widths[1])}  {printable(what)}")
    if audit.findings:
        print("audit: look at each; `make lock UPGRADE=PACKAGE` takes a newer version of one")
    return 1 if audit.findings else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.lock")
    parser.add_argument("--seconds", type=float, default=30, help="for all of it (default 30)")
    options = parser.parse_args()
    locked = read_lock(options.lock.read_text("utf-8"))
    loop = asyncio.new_event_loop()
    try:
        audit = loop.run_until_complete(audit_all(configured_index(), locked, options.seconds))
    except (NotAudited, OSError) as error:
        print(f"audit: not audited: {printable(str(error))}")
        return 0
    return tell(audit, locked)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # A look-up of a name cannot be cancelled, and an ordinary end would wait for it.
    os._exit(code)
