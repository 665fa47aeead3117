"""`retinue keys`: a key is in the keyring and nowhere else, and goes to one address alone."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path

import pytest
from world import Cli, end_of

from retinue.file_lock import locked
from retinue.testing import FakeProvider, Script

KEY = "sk-kept-1234567890"
RING = '''
import json, os
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

class Ring(KeyringBackend):
    """Stands in for the system's: a file outside of what the command may know."""
    priority = 1
    name = "the ring of the test"

    def _all(self):
        try:
            with open(os.environ["RING"]) as file:
                return json.load(file)
        except OSError:
            return {}

    def _write(self, found):
        with open(os.environ["RING"], "w") as file:
            json.dump(found, file)

    def get_password(self, service, name):
        return self._all().get(f"{service}/{name}")

    def set_password(self, service, name, password):
        self._write({**self._all(), f"{service}/{name}": password})

    def delete_password(self, service, name):
        found = self._all()
        if found.pop(f"{service}/{name}", None) is None:
            raise PasswordDeleteError(name)
        self._write(found)
'''


@pytest.fixture
def ring(cli: Cli, tmp_path: Path) -> Path:
    folder = tmp_path / "ring"
    folder.mkdir()
    (folder / "own_ring.py").write_text(RING)
    cli.env |= {
        "PYTHONPATH": str(folder),
        "PYTHON_KEYRING_BACKEND": "own_ring.Ring",
        "RING": str(folder / "ring.json"),
    }
    return folder / "ring.json"


def _written_in_clear(home: Path, *but: Path) -> list[Path]:
    return [
        file
        for file in home.rglob("*")
        if file.is_file() and file not in but and KEY.encode() in file.read_bytes()
    ]


async def test_a_kept_key_is_used_and_stands_in_no_file(cli: Cli, ring: Path) -> None:
    async with FakeProvider(keys=(KEY,)) as provider:
        cli.env["OPENAI_BASE_URL"] = provider.openai_url
        kept = await cli("keys", "set", "openai", input=f"{KEY}\n")
        assert kept.code == 0, kept.err
        assert "the ring of the test" in kept.err
        provider.add(Script(text="with the kept key"))
        ended = await cli("ask", "hello", "--model", "openai:fake-model")
        assert "with the kept key" in ended.out, ended.err
        listed = await cli("keys", "list", "--json")
        assert listed.lines == [{"provider": "openai", "place": "the keyring"}]
        doctor = await cli("doctor")
        assert "openai (in the keyring)" in doctor.out
        assert KEY not in "".join((*(kept.out, kept.err), ended.err, listed.out, doctor.out))
        assert ring.is_file()
        assert _written_in_clear(cli.home, ring) == []
        assert (await cli("keys", "remove", "openai")).code == 0
        assert (await cli("keys", "list")).out == ""
        assert KEY not in ring.read_text()


async def test_a_kept_key_goes_to_no_other_address(cli: Cli, ring: Path) -> None:
    async with FakeProvider(keys=(KEY,)) as provider, FakeProvider(keys=(KEY,)) as other:
        cli.env["OPENAI_BASE_URL"] = provider.openai_url
        assert (await cli("keys", "set", "openai", input=KEY)).code == 0
        ended = await cli("ask", "hello", "--model", "openai:fake-model", OPENAI_BASE_URL=other.openai_url)
        assert ended.code == 5
        assert not other.requests


async def test_the_key_of_the_environment_counts_first(cli: Cli, ring: Path) -> None:
    async with FakeProvider(keys=("from-the-environment",)) as provider:
        cli.env["OPENAI_BASE_URL"] = provider.openai_url
        assert (await cli("keys", "set", "openai", input=KEY)).code == 0
        provider.add(Script(text="yes"))
        ended = await cli(
            "ask", "hello", "--model", "openai:fake-model", OPENAI_API_KEY="from-the-environment"
        )
        assert ended.code == 0, ended.err


@pytest.mark.parametrize("backend", ["keyring.backends.fail.Keyring", "keyring.backends.null.Keyring"])
async def test_where_there_is_no_keyring_that_is_said(cli: Cli, backend: str) -> None:
    ended = await cli("keys", "set", "openai", input=KEY, PYTHON_KEYRING_BACKEND=backend)
    assert ended.code == 2
    assert "no keyring" in ended.err
    assert "in the environment" in ended.err
    assert not (cli.home / "config" / "retinue" / "config.toml").exists()


async def test_what_is_no_key_or_no_provider_is_refused(cli: Cli, ring: Path) -> None:
    assert (await cli("keys", "set", "openai", input="\n")).code == 2
    assert (await cli("keys", "set", "openai", input="two words\n")).code == 2
    unknown = await cli("keys", "set", "opnai", input=KEY)
    assert unknown.code == 2
    assert "anthropic" in unknown.err
    assert not ring.exists()


async def test_a_key_is_removed_whatever_address_is_in_force(cli: Cli, ring: Path) -> None:
    gateway, other = "http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"
    assert (await cli("keys", "set", "openai", input=KEY)).code == 0
    assert (await cli("keys", "set", "openai", input=KEY, OPENAI_BASE_URL=gateway)).code == 0
    gone = await cli("keys", "remove", "openai", OPENAI_BASE_URL=other)
    assert "https://api.openai.com/v1 is not in the keyring any more" in gone.err
    assert f"{gateway} is not in the keyring any more" in gone.err
    assert json.loads(ring.read_text()) == {}
    assert (await cli("keys", "list")).out == ""
    assert "had none" in (await cli("keys", "remove", "openai")).err


async def test_setup_offers_the_model_of_a_key_that_is_in_the_keyring_or_a_token(
    cli: Cli, ring: Path
) -> None:
    assert (await cli("keys", "set", "mistral", input=KEY)).code == 0
    found = await cli("setup", input="0\n", ANTHROPIC_AUTH_TOKEN="a-token")
    assert "mistral:" in found.err
    assert "its key is in the keyring" in found.err
    assert "ANTHROPIC_AUTH_TOKEN is set" in found.err
    doctor = await cli("doctor", ANTHROPIC_AUTH_TOKEN="a-token")
    assert "keys: anthropic, mistral (in the keyring)" in " ".join(doctor.out.split()).replace(
        "keys ", "keys: "
    )


async def test_a_key_of_the_keyring_is_blanked_out_of_what_is_exported(cli: Cli, ring: Path) -> None:
    plain = "Zq7xv2LmN4pRt8Ws1Yb3"  # by nothing but its value it could be known for a key
    assert (await cli("keys", "set", "openai", input=plain)).code == 0
    assert (await cli("ask", f"is {plain} a key?", "--model", "offline")).code == 3
    for more in ((), ("--html",)):
        export = await cli("runs", "export", "last", *more)
        assert export.code == 0, export.err
        assert "[secret]" in export.out
        assert plain not in export.out


def _waits_for(file: Path) -> bool:
    """Whether somebody waits for the lock of this file."""
    number = f":{file.stat().st_ino} "
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and number in line for line in lines)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="no list of locks here")
@pytest.mark.parametrize(
    ("command", "typed"),
    [
        (("config", "set", "limits.max_turns", "7"), ""),
        (("config", "unset", "limits.timeout"), ""),
        (("keys", "set", "openai"), KEY),
        (("keys", "remove", "openai"), ""),
        (("setup",), "2\n\n"),
        (("mcp", "add", "here", "--", "true"), ""),
    ],
)
async def test_a_command_keeps_what_another_process_writes_into_the_settings_meanwhile(
    cli: Cli, ring: Path, command: tuple[str, ...], typed: str
) -> None:
    mine = cli.home / "config" / "retinue" / "config.toml"
    mine.parent.mkdir(parents=True)
    mine.write_text("keyring = ['openai']\n[limits]\ntimeout = 90\n")
    async with FakeProvider() as provider:
        provider.add(Script(text="ready"))
        cli.env |= {"VLLM_BASE_URL": provider.openai_url, "VLLM_API_KEY": "test-key"}
        with locked(mine):
            process = await cli.start(*command, input=True)
            assert process.stdin is not None
            process.stdin.write(typed.encode())
            process.stdin.close()
            lock = mine.with_name(f"{mine.name}.lock")
            while process.returncode is None and not _waits_for(lock):
                await asyncio.sleep(0.01)
            said = (
                b"" if process.returncode is None or process.stderr is None else await process.stderr.read()
            )
            assert process.returncode is None, f"it wrote while another held the lock: {said}"
            mine.write_text(mine.read_text().replace("timeout = 90", "timeout = 91\nmax_cost = 3"))
        assert await end_of(process) == 0
    limits = tomllib.loads(mine.read_text())["limits"]
    assert limits["max_cost"] == 3
    assert limits.get("timeout") == (None if "unset" in command else 91)
