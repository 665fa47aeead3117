"""A release: a typed wheel, and a list of what it needs: the locked versions, no tool of ours."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        ["bash", "scripts/release.sh", str(folder)], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def reachable_by_the_lock() -> set[tuple[str, str]]:
    """What the lock itself says is needed by what, in its comments, beginning at the project without its dev group.

    A little too much: the lock does not say which of them are there for an extra that only a tool of ours asks for.
    """
    parents: dict[str, list[str]] = {}
    versions: dict[str, str] = {}
    for entry in re.split(r"\n(?=[a-z0-9])", (ROOT / "requirements.lock").read_text()):
        wanted = Requirement(entry.partition(" \\\n")[0])
        if wanted.marker is None or wanted.marker.evaluate():
            versions[wanted.name] = str(wanted.specifier).removeprefix("==")
            parents[wanted.name] = re.findall(r"^    #(?: via)? +([\w.-]+(?: \(.*\))?)$", entry, re.M)
    found = {name for name, above in parents.items() if "retinue (pyproject.toml)" in above}
    while more := {name for name, above in parents.items() if found & set(above)} - found:
        found |= more
    return {(name, versions[name]) for name in found}


def test_the_list_of_a_release_is_the_locked_runtime_dependencies_and_nothing_of_the_tools(
    built: Path,
) -> None:
    sbom = json.loads((built / "sbom.cdx.json").read_text())
    listed = {(one["name"], one["version"]) for one in sbom["components"]}
    assert listed <= reachable_by_the_lock()
    names = {name for name, _ in listed}
    ahead = set(declared())
    for name in names:
        ahead |= {
            canonicalize_name(one.name)
            for one in map(Requirement, distribution(name).requires or ())
            if one.marker is None or one.marker.evaluate({"extra": ""})
        }
    assert ahead <= names
    assert sbom["metadata"]["component"]["name"] == "retinue"


def declared() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    return [canonicalize_name(Requirement(one).name) for one in texts if not one.startswith("retinue[")]


def test_the_wheel_says_that_it_is_typed_and_holds_no_tests(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "retinue/py.typed" in names
    assert all(name.startswith(("retinue/", "retinue-")) for name in names)


def test_the_digests_are_those_of_the_files(built: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], check=True, cwd=built)
