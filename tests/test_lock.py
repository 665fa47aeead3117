"""The lock of the dependencies: whole, machine-independent, and enforced when the project is set up.

Nothing here asks a registry: what is installed stands in a folder that the test makes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text()


@dataclass(frozen=True, kw_only=True)
class Locked:
    """One entry of the lock: what it pins and the hashes of its files."""

    requirement: Requirement
    hashes: tuple[str, ...]


def entries() -> list[Locked]:
    whole = re.sub(r" *\\\n *", " ", LOCK)
    found: list[Locked] = []
    for line in whole.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words, *hashes = line.split(" --hash=")
        found.append(Locked(requirement=Requirement(words), hashes=tuple(hashes)))
    return found


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    texts = [
        *project["project"]["dependencies"],
        *(text for extra in extras for text in extra),
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
    ]
    return [Requirement(text) for text in texts if not text.startswith("retinue[")]


def test_every_locked_version_is_exact_and_has_the_hashes_of_its_files() -> None:
    assert len(entries()) > 100
    for entry in entries():
        assert re.fullmatch(r"==[\w.+!]+", str(entry.requirement.specifier)), entry
        assert entry.hashes, entry
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one.strip()) for one in entry.hashes), entry


def test_the_lock_names_no_address_and_no_option_but_hashes() -> None:
    assert "://" not in LOCK
    assert " @ " not in LOCK
    assert not re.search(r"^\s*--(?!hash=)", LOCK, re.M)


def test_whatever_is_declared_is_locked_in_a_version_that_fits() -> None:
    locked: dict[str, list[str]] = {}
    for entry in entries():
        name = canonicalize_name(entry.requirement.name)
        locked.setdefault(name, []).append(str(entry.requirement.specifier).removeprefix("=="))
    for wanted in declared():
        versions = locked.get(canonicalize_name(wanted.name))
        assert versions, f"{wanted.name} is not in requirements.lock: run `make lock`"
        assert any(wanted.specifier.contains(one, prereleases=True) for one in versions), (
            f"requirements.lock has {wanted.name} {versions}, which {wanted} does not allow: run `make lock`"
        )


def wheel(folder: Path) -> Path:
    """A package with one empty module, as a wheel."""
    path = folder / "planted-1.0-py3-none-any.whl"
    files = {
        "planted.py": b"",
        "planted-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n",
        "planted-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
        for name, data in files.items()
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr("planted-1.0.dist-info/RECORD", record + "planted-1.0.dist-info/RECORD,,\n")
    return path


@pytest.mark.skipif(not shutil.which("uv"), reason="the set-up script would have to fetch uv")
@pytest.mark.parametrize(
    ("pin", "installed"),
    [
        ("planted==1.0 --hash=sha256:{digest}", True),
        ("planted==1.0 --hash=sha256:" + "0" * 64, False),
        ("planted==1.0", False),
    ],
    ids=["the locked file", "another file of that name", "no hash"],
)
def test_set_up_installs_only_files_whose_hash_is_locked(tmp_path: Path, pin: str, installed: bool) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", tmp_path / "scripts")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    digest = hashlib.sha256(wheel(wheels).read_bytes()).hexdigest()
    (tmp_path / "requirements.lock").write_text(pin.format(digest=digest) + "\n")
    offline = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels), "UV_OFFLINE": "1", "PYTHON": sys.executable}

    # With the right hash it goes on to the package itself, which this folder does not have.
    done = subprocess.run(
        ["bash", "scripts/setup.sh"],
        check=False,
        cwd=tmp_path,
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
    )

    assert done.returncode != 0
    assert bool(list((tmp_path / ".venv").rglob("planted.py"))) is installed, done.stderr
    assert installed or "hash" in done.stderr.lower()


# -- the tools that check the page's JavaScript


def test_the_lock_of_the_pages_tools_names_no_registry_and_has_a_hash_for_everything() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text())
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    installed = {path: entry for path, entry in lock["packages"].items() if path}
    for path, entry in installed.items():
        assert "resolved" not in entry, path
        assert entry["integrity"].startswith("sha512-"), path
        assert entry["dev"], path
    assert {name: installed[f"node_modules/{name}"]["version"] for name in wanted} == wanted
