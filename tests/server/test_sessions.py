"""Who is logged in: cookies that nobody can make, that end when they are ended, on every server of one user."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from api import SECRETS, serving, tokens

from retinue.errors import ConfigError
from retinue.server import kept_file, sessions
from retinue.server.security import Access, Identity, Token
from retinue.server.sessions import Sessions
from retinue.server.tokens import grant, read, revoke
from retinue.testing import ScriptedModel


def known(access: Access, role: str) -> Identity:
    who = access.by_secret(SECRETS[role])
    assert who is not None
    return who


def test_a_session_ends_with_its_time_and_with_its_token(tmp_path: Path) -> None:
    file = tmp_path / "sessions.json"
    access = Access(tokens(), sessions=Sessions(file))
    who = known(access, "ask")
    cookie = access.session(who, now=1000)
    assert access.by_session(cookie, now=1001) == who
    again = Access(tokens(), sessions=Sessions(file))
    assert again.by_session(cookie, now=1001) == who, "a restart ends no session"
    assert access.by_session(cookie, now=1000 + 31 * 86400) is None
    for others in (("ask", "another-secret-of-the-same-name"), ("else", "another-secret-entirely")):
        other = Access([Token.of(others[0], "admin", others[1])], sessions=Sessions(file))
        assert other.by_session(cookie, now=1001) is None


def test_a_token_that_is_revoked_lets_nobody_in_while_the_server_runs() -> None:
    held, changed = tokens(), list[list[Token]]()
    access = Access(held, reread=lambda: changed.pop() if changed else None)
    who = known(access, "ask")
    cookie = access.session(who)
    assert access.by_session(cookie) == who
    changed.append([token for token in held if token.name != "ask"])
    assert access.by_session(cookie) is None
    assert access.by_secret(SECRETS["ask"]) is None
    assert not access.knows(who), "and the streams it holds open end"
    changed.append([Token.of("ask", "ask", "a-new-secret-of-that-name"), *held[:1]])
    assert not access.knows(who), "also where somebody else has that name by now"
    changed.append([])
    assert access.identify(None, None) is None, "with the last token gone the server is closed, not open"


def test_whoever_reads_the_files_of_a_server_can_make_no_cookie(tmp_path: Path) -> None:
    file = tmp_path / "sessions.json"
    access = Access(tokens(), sessions=Sessions(file))
    cookie = access.session(known(access, "admin"))
    (row,) = json.loads(file.read_text())["sessions"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert cookie not in file.read_text()
    digests = [token.digest for token in tokens()]
    assert not any(digest in file.read_text() for digest in digests), "a weak token could be guessed from it"
    until = str(int(time.time()) + 86400)
    signed = [hmac.new(d.encode(), f"admin\0{until}".encode(), hashlib.sha256).hexdigest() for d in digests]
    leaked = [*digests, *(str(value) for value in row.values())]
    for forged in (*leaked, *(f"{b'admin'.hex()}.{until}.{one}" for one in (*signed, *leaked))):
        assert access.by_session(forged) is None
        assert access.by_secret(forged) is None


def test_a_session_that_is_ended_on_one_server_is_ended_on_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_file, "LOOK_SECONDS", 0.0)
    file = tmp_path / "sessions.json"
    one, other = (Access(tokens(), sessions=Sessions(file)) for _ in range(2))
    first, second = one.session(known(one, "ask")), other.session(known(other, "watch"))
    who = other.by_session(first)
    assert who is not None
    assert who == known(one, "ask")
    one.sessions.end(first)
    for access in (one, other, Access(tokens(), sessions=Sessions(file))):
        assert access.by_session(first) is None
        assert not access.knows(who), "its streams end too"
        assert access.by_session(second) == known(access, "watch"), "nobody else is logged out"


def test_a_token_has_so_many_sessions_and_the_oldest_ends_first() -> None:
    access = Access(tokens())
    cookies = [access.session(known(access, "ask")) for _ in range(sessions.MOST_OF_A_NAME + 1)]
    assert [access.by_session(cookie) is None for cookie in cookies] == [True] + [False] * 20


def test_sessions_that_cannot_be_kept_are_there_until_the_server_ends(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    access = Access(tokens(), sessions=Sessions(tmp_path / "file" / "below"))
    cookie = access.session(known(access, "ask"))
    assert access.by_session(cookie) == known(access, "ask")
    access.sessions.end(cookie)
    assert access.by_session(cookie) is None


def test_a_damaged_file_of_sessions_lets_nobody_in_and_is_made_anew(tmp_path: Path) -> None:
    for damaged in ("no json", "[]", '{"sessions": [1]}', '{"sessions": [{"name": "admin"}]}'):
        file = tmp_path / "sessions.json"
        file.write_text(damaged)
        file.chmod(0o600)
        access = Access(tokens(), sessions=Sessions(file))
        cookie = access.session(known(access, "ask"))
        assert Access(tokens(), sessions=Sessions(file)).by_session(cookie) == known(access, "ask")


def test_tokens_that_others_can_write_are_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    grant(file, [("alice", "ask")])
    file.chmod(0o620)
    with pytest.raises(ConfigError, match=r"others than you can write to it.*chmod 600"):
        read(file)


def test_what_is_revoked_while_another_token_is_made_stays_revoked(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    grant(file, [(f"t{n}", "ask") for n in range(20)])
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(revoke, file, f"t{n}") for n in range(20)]
        done += [pool.submit(grant, file, [(f"n{n}", "ask")]) for n in range(20)]
    assert [one.exception() for one in done] == [None] * 40
    assert sorted(read(file)) == sorted(f"n{n}" for n in range(20))


async def test_a_stream_ends_when_the_session_that_opened_it_is_logged_out(folder: Path) -> None:
    async with serving(ScriptedModel(lambda r: "done"), folder, with_tokens=True, heartbeat=0.05) as nobody:
        await nobody.post("login", {"token": SECRETS["ask"]})
        own = {"Origin": nobody.url}
        run_id = (await nobody.post("runs", {"prompt": "x"}, headers=own))["run_id"]
        begun = asyncio.Event()

        async def follow() -> None:
            async for _ in nobody.stream(f"runs/{run_id}/stream"):
                begun.set()

        following = asyncio.create_task(follow())
        await begun.wait()
        await nobody.post("logout", headers=own)
        async with asyncio.timeout(30):
            await following


async def test_logging_in_again_ends_the_session_before(folder: Path) -> None:
    async with serving(ScriptedModel(lambda r: "done"), folder, with_tokens=True) as nobody:
        first = await nobody("POST", "login", {"token": SECRETS["ask"]})
        copied = {"Cookie": first.headers["Set-Cookie"].partition(";")[0]}
        assert (await nobody.get("me"))["role"] == "ask"
        await nobody("POST", "login", {"token": SECRETS["admin"]}, headers={"Origin": nobody.url})
        assert (await nobody.get("me"))["role"] == "admin"
        nobody.session.cookie_jar.clear()
        assert (await nobody("GET", "me", headers=copied)).status == 401


FULL = """
import os, sys
from pathlib import Path
from retinue.server.sessions import Sessions
folder = Path(sys.argv[1])
sessions = Sessions(folder / "sessions.json")
cookies = [sessions.begin(f"name{n}", "credential") for n in range(3)]
filler = os.open(folder / "filler", os.O_CREAT | os.O_WRONLY)
try:
    while os.write(filler, bytes(4096)):
        pass
except OSError:
    pass
before = sorted(os.listdir(folder))
sessions.end(cookies[1])
again = Sessions(folder / "sessions.json")
credentials = {f"name{n}": "credential" for n in range(3)}
print([each.find(cookie, credentials) is not None for each in (sessions, again) for cookie in cookies])
print(before == sorted(os.listdir(folder)))
"""


def test_who_logs_out_on_a_full_disk_is_logged_out_after_a_restart_too(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "-Urm", "sh", "-c", script, "sh", str(tmp_path), sys.executable, FULL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip("no file system of a small size can be made here")
    assert done.stdout.splitlines() == [str([True, False, True] * 2), "True"], done.stderr
