"""A database, or a run in it, that is taken away while a command works with it: a word, and exit code 6."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from test_cli_life import read_until
from world import Cli

from retinue.testing import FakeProvider, Script

pytestmark = pytest.mark.usefixtures("nothing_left")


def lose(db: Path, what: str) -> str:
    """Take the file away. Returns what is to be said about it."""
    if what == "deleted":
        db.unlink()
        return "was deleted while it was in use"
    other = db.with_name("other.db")
    other.touch()
    os.replace(other, db)
    return "was replaced by another file while it was in use"


def damage(db: Path) -> None:
    """Write rubbish over the file and its log, such that whoever has it open notices at its next look."""
    connection = sqlite3.connect(db)
    connection.execute("INSERT INTO cache VALUES ('a', 'b', x'00', 1e12)")
    connection.commit()
    for path in (db, db.with_name(f"{db.name}-wal")):
        with path.open("r+b") as file:
            file.write(b"\xa5" * path.stat().st_size)
    connection.close()


def post(url: str, prompt: str) -> tuple[int, str]:
    """Ask a server for a run: the status and what it says."""
    body = json.dumps({"agent": "general", "prompt": prompt}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("what", ["deleted", "replaced"])
async def test_a_question_whose_database_is_taken_away_ends_with_code_6_and_says_so(
    what: str, cli: Cli, provider: FakeProvider
):
    cli.use(provider)
    gate, db = asyncio.Event(), cli.home / "runs.db"
    provider.add(Script(text="an answer", gate=gate))
    process = await cli.start("ask", "hello", "--events", "--db", str(db))
    await read_until(process, "step_started")
    words = lose(db, what)
    gate.set()
    _, err = await process.communicate()
    assert process.returncode == 6
    assert words in err.decode()


async def test_a_question_whose_database_is_damaged_meanwhile_names_the_way_to_save_it(
    cli: Cli, provider: FakeProvider
):
    cli.use(provider)
    gate, db = asyncio.Event(), cli.home / "runs.db"
    provider.add(Script(text="an answer", gate=gate))
    process = await cli.start("ask", "hello", "--events", "--db", str(db))
    await read_until(process, "step_started")
    damage(db)
    gate.set()
    _, err = await process.communicate()
    assert process.returncode == 6, err.decode()
    assert "retinue doctor --salvage-to" in err.decode()


@pytest.mark.parametrize("what", ["deleted", "replaced"])
async def test_a_server_whose_database_is_taken_away_says_so_and_ends_with_code_6(
    what: str, cli: Cli, provider: FakeProvider
):
    cli.use(provider)
    gate, db = asyncio.Event(), cli.home / "runs.db"
    provider.add(Script(text="an answer", gate=gate))
    process = await cli.start("serve", "--port", "0", "--db", str(db))
    assert process.stderr is not None
    err = b""
    while not (found := re.search(rb"served at (http://\S+)/", err)):
        line = await process.stderr.readline()
        assert line, err.decode()
        err += line
    code, text = await asyncio.to_thread(post, f"{found[1].decode()}/api/v1/runs", "hello")
    assert code < 300, text
    while not provider.requests:
        await asyncio.sleep(0.01)
    words = lose(db, what).encode()
    gate.set()
    while words not in err:  # while it still runs: nobody learns it from the exit code alone
        line = await process.stderr.readline()
        assert line, err.decode()
        err += line
    code, text = await asyncio.to_thread(post, f"{found[1].decode()}/api/v1/runs", "again")
    assert code >= 500
    assert words.decode() in text
    process.send_signal(signal.SIGTERM)
    _, rest = await process.communicate()
    assert process.returncode == 6, (err + rest).decode()
    assert words in rest


async def test_a_run_that_is_deleted_while_it_works_ends_with_code_6_and_nothing_of_it_stays(
    cli: Cli, provider: FakeProvider
):
    cli.use(provider)
    db = cli.home / "runs.db"
    provider.add(
        Script(text="an answer", gate=asyncio.Event())
    )  # it never comes: the delete itself is noticed
    process = await cli.start("ask", "hello", "--events", "--db", str(db))
    await read_until(process, "step_started")
    deleted = await cli("runs", "delete", "last", "--force", "--db", str(db))
    assert (deleted.code, "stops with an error" in deleted.err) == (0, True), deleted.err
    _, err = await process.communicate()
    assert (process.returncode, "was deleted while this process worked on it" in err.decode()) == (6, True)
    rows = sqlite3.connect(db)
    for table in ("events", "runs", "letters", "retinue_files"):
        assert rows.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    rows.close()


async def test_doctor_finds_what_is_left_of_a_deleted_run_and_names_what_removes_it(cli: Cli):
    db = str(cli.home / "runs.db")
    assert (await cli("run", "code-search", "where is parse?", "-m", "offline", "--db", db)).code in (0, 3)
    rows = sqlite3.connect(db)
    rows.execute("DELETE FROM events WHERE seq = 1")
    rows.execute("DELETE FROM runs")
    rows.commit()
    looked = await cli("doctor", "--db", db)
    assert (looked.code, f"retinue runs prune --strays --db {db}" in looked.out) == (1, True), looked.out
    for by in (("--older-than", "1h"), ("--max-size", "1GB")):
        assert (await cli("runs", "prune", *by, "--db", db)).code == 0
        assert rows.execute("SELECT count(*) FROM events").fetchone() != (0,), f"{by} is not about this one"
    pruned = await cli("runs", "prune", "--strays", "--db", db)
    assert (pruned.code, "1 workflow" in pruned.err) == (0, True), pruned.err
    assert rows.execute("SELECT count(*) FROM events").fetchone() == (0,)
    rows.close()
    assert "strays" not in (await cli("doctor", "--db", db)).out
