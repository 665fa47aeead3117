"""Print the part of requirements.lock that Retinue needs when it runs: dependencies, all extras, and theirs.

Called by `scripts/release.sh` for the list of what a release contains. Which package needs which is read from
the installed packages of the venv, so it is for this system and Python; a version is always the locked one.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def locked() -> dict[str, str]:
    """The entries of the lock that are for this system, with their hashes, by name."""
    found: dict[str, str] = {}
    for line in re.sub(r" *\\\n *", " ", (ROOT / "requirements.lock").read_text()).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            wanted = Requirement(line.split(" --hash=")[0])
            if wanted.marker is None or wanted.marker.evaluate():
                found[canonicalize_name(wanted.name)] = line
    return found


def needed() -> set[str]:
    """Every package that a run can need, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [
        *project["dependencies"],
        *(t for extra in project["optional-dependencies"].values() for t in extra),
    ]
    ahead = [Requirement(text) for text in texts if not text.startswith("retinue[")]
    seen: set[tuple[str, str]] = set()
    while ahead:
        wanted = ahead.pop()
        name = canonicalize_name(wanted.name)
        for extra in ("", *wanted.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                below = [Requirement(text) for text in distribution(name).requires or ()]
            except PackageNotFoundError:
                raise SystemExit(f"{name} is not installed: run `make setup`") from None
            ahead += [one for one in below if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def main() -> None:
    lines = locked()
    for name in sorted(needed()):
        print(lines[name])


if __name__ == "__main__":
    main()
