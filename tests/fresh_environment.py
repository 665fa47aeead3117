"""A fresh environment that has only the wheel of this package and what that needs: no file of the sources.

Nothing is fetched: what the wheel needs is linked from the environment that the tests run in, package by
package, by what each says that it needs.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def make(folder: Path, extras: Iterable[str] = ()) -> Path:
    """Build the wheel and install it into an environment of its own. Returns the environment's Python."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    [wheel] = (folder / "dist").glob("*.whl")
    home = folder / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    zipfile.ZipFile(wheel).extractall(site)
    for name in needed("retinue", tuple(extras)):
        found = distribution(name)
        for top in {
            file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")
        }:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))).resolve())
    return home / "bin" / "python"


def needed(name: str, extras: tuple[str, ...]) -> set[str]:
    """What a package needs, and what that needs."""
    found: set[tuple[str, tuple[str, ...]]] = set()
    todo = [(name, extras)]
    while todo:
        each = todo.pop()
        if each in found:
            continue
        try:
            wants = distribution(each[0]).requires or ()
        except PackageNotFoundError:
            continue  # for another system
        found.add(each)
        for wanted in map(Requirement, wants):
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": e}) for e in ("", *each[1])):
                todo.append((canonicalize_name(wanted.name), tuple(sorted(wanted.extras))))
    return {package for package, _ in found} - {name}
