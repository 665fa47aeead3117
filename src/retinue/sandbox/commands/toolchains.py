"""Which folders hold the programs of a machine, and what these need of what lies beside them.

Called by `view`, for commands that are sealed off. Nobody can list all that is secret in a home, so this
lists what programs need: folders of toolchains, those on `PATH`, and where version managers keep what their
shims start.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
MANAGED = (
    *("bin", "installs", "libexec", "plugins", "shims", "version", "versions"),
    *("goenv.d", "jenv.d", "nodenv.d", "pyenv.d", "rbenv.d"),
)
"""What the shims of a version manager need of its folder: its own programs, and those that it installed."""
HOME = (
    *(f".pyenv/{name}" for name in MANAGED),
    *(".rustup", ".cargo/bin", ".cargo/registry", ".cargo/git", ".nvm", ".fnm", ".volta", ".asdf"),
    *(".rbenv", ".sdkman", ".bun", ".deno", ".ghcup", ".opam", ".juliaup", "go/bin", "go/pkg", "bin"),
    *(".dotnet/dotnet", ".dotnet/host", ".dotnet/packs", ".dotnet/sdk", ".dotnet/shared", ".dotnet/tools"),
    *(
        ".local/bin",
        ".local/lib",
        ".local/pipx",
        ".local/share/uv/python",
        ".local/share/uv/tools",
        ".local/share/pipx",
        ".local/share/mise",
    ),
    *(".local/share/pnpm", ".local/share/fnm", "miniconda3", "miniforge3", "anaconda3", ".m2/repository"),
)
"""Of the home: toolchains, and no folder that keeps passwords beside them."""
BESIDE = (
    *(
        "lib",
        "lib32",
        "lib64",
        "libexec",
        "include",
        "share",
        "store",
        "pyvenv.cfg",
        "conda-meta",
        "ssl/certs",
    ),
    *("jre", "jmods", "conf", "legal", "release"),
)
"""What an installed program needs of the folder that its `bin` lies in: nobody knows what else is there."""
BESIDE_GO = ("api", "go.env", "misc", "pkg", "src", "VERSION")
SHARED_INSTALLATIONS = ("/opt", "/snap")
"""Where whole programs are installed for everybody of a machine."""
MOST_LINKS = 40


def on_the_path(home: str, project: str | None, environ: Mapping[str, str]) -> Iterator[str]:
    """Programs that are installed elsewhere, with what they need of what lies beside them."""
    names = [*environ.get("PATH", "").split(":"), f"{sys.base_prefix}/bin"]
    names += [f"{environ[name]}/bin" for name in ("VIRTUAL_ENV", "JAVA_HOME", "GOROOT") if environ.get(name)]
    names += [f"{environ['PYENV_ROOT']}/shims"] if environ.get("PYENV_ROOT") else []
    tops = (home, *filter(None, (project, real_home(environ))))
    for folder in dict.fromkeys(os.path.realpath(name) for name in names if os.path.isabs(name)):
        if (project is not None and within(folder, project)) or any(within(folder, top) for top in SYSTEM):
            continue
        if any(within(top, folder) for top in tops):
            continue
        above, name = os.path.split(folder)
        whole = name == "bin" and any(within(os.path.dirname(above), top) for top in SHARED_INSTALLATIONS)
        if whole or (os.path.basename(above), name) in (("vendor", "bin"), ("node_modules", ".bin")):
            yield above
            continue
        yield folder
        if name == "shims" and _is_managed(above) and not any(within(top, above) for top in tops):
            yield from (f"{above}/{each}" for each in MANAGED)
        own = [each for each in dict.fromkeys((home, real_home(environ))) if each]
        if name == "bin" and above not in [
            f"{each}{end}" for each in own for end in ("", "/.local", "/.cargo")
        ]:
            go = BESIDE_GO if os.path.exists(f"{folder}/go") and os.path.exists(f"{above}/VERSION") else ()
            beside = [
                each for each in BESIDE if each != "share" or not any(within(above, top) for top in own)
            ]
            yield from (f"{above}/{each}" for each in (*beside, *go))


def _is_managed(folder: str) -> bool:
    """Whether a version manager keeps there what it installed."""
    return any(os.path.isdir(f"{folder}/{name}") for name in ("versions", "installs"))


def real_home(environ: Mapping[str, str]) -> str:
    return os.path.realpath(environ["HOME"]) if environ.get("HOME") else ""


def within(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def site_settings(readable: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The settings of pip for an installed Python: they may hold the password of an index."""
    for source, target in readable:
        if os.path.basename(target) == "versions":
            for inner in ("", *(f"{each}/envs" for each in _folders(source))):
                names = (f"{inner}/{each}/pip.conf".lstrip("/") for each in _folders(f"{source}/{inner}"))
                yield from (f"{target}/{name}" for name in names if os.path.isfile(f"{source}/{name}"))


def _folders(path: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        return [each.name for each in entries if each.is_dir(follow_symlinks=False)]
    return []


def links_to(environ: Mapping[str, str], project: str | None) -> list[tuple[str, str]]:
    """The links in the names by which programs are looked for, and what each says: shims and scripts name
    their folder as it was called when they were written."""
    names = [*environ.get("PATH", "").split(":"), environ.get("PYENV_ROOT", "")]
    found: dict[str, str] = {}
    for name in filter(os.path.isabs, names):
        for _ in range(MOST_LINKS):
            link = next((path for path in _downwards(name) if os.path.islink(path)), None)
            if link is None:
                break
            found[link] = os.readlink(link)
            leads = os.path.normpath(os.path.join(os.path.dirname(link), found[link]))
            name = os.path.normpath(os.path.join(leads, os.path.relpath(name, link)))
    tops = (*SYSTEM, *([project] if project else ()))
    return [(path, text) for path, text in found.items() if not any(within(path, top) for top in tops)]


def _downwards(path: str) -> Iterator[str]:
    """`/a`, then `/a/b`, of `/a/b`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return (f"/{'/'.join(parts[: count + 1])}" for count in range(len(parts)))
