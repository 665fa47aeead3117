"""Holds the rules for commands against bash itself: what they call allowed is run, and must run nothing else.

    python tests/fuzz/shell_trial.py allow --commands 1000000 --jobs 2
    python tests/fuzz/shell_trial.py deny --commands 100000

`allow`: commands are generated, and judged by the twenty rules of docs/delegation.md. Each that is allowed runs with stubs
for every program: what was run must be what the rules mean, in the surroundings they were written for, and nothing may be
written. One in `--real-every` runs once more with the real programs: nothing may be run or written by their options.
`deny`: ways to run `git push` are generated, and judged beside `deny bash(git push*)`. Each that is allowed runs, and must
not run `git push`; one in `--real-every` of the others runs too, which says how many of them are real.

It prints a line of JSON with the seed and what was found, and ends with 1 if anything was.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # rg comes with a wheel
sys.path[:0] = [str(TESTS), str(ROOT / "src")]

from fuzz.shell_commands import RULES, Commands  # noqa: E402
from fuzz.shell_disguises import Disguises, ran_push  # noqa: E402
from fuzz.shell_stage import Done, Stage, confine  # noqa: E402
from retinue.approvals import Rules  # noqa: E402
from retinue.authority.rules import Asked  # noqa: E402
from retinue.settings import ApprovalSettings  # noqa: E402
from retinue.workspace import Files  # noqa: E402

WRAPPERS = ("env", "nice", "nohup", "timeout", "stdbuf", "xargs", "setsid")
OTHERS = [
    "mark",
    "sh",
    "bash",
    "dash",
    "tee",
    "rm",
    "sudo",
    "python",
    "python3",
    "perl",
    "awk",
    "gpg",
    "man",
    "less",
    "more",
    "vi",
    "F",
    "x",
    "a",
    "b",
    "src",
    "main",
    "HEAD",
    "TODO",
    "10",
    "5",
    "ssh",
    "E",
]
MOST_KEPT = 50
FOLDERS = ("", "/src", "/docs")
"""The folders of the project in which what does the same everywhere may run."""


def published() -> list[str]:
    """The rules of the documentation, as it shows them."""
    page = (ROOT / "docs/delegation.md").read_text().partition("### Twenty rules to begin with")[2]
    block = re.search(r"```toml\n(.*?)```", page, re.S)
    assert block is not None
    return tomllib.loads(block[1])["approvals"]["allow"]


def everyday() -> list[str]:
    lines = (TESTS / "data/everyday_commands.txt").read_text().splitlines()
    return [line.replace("⏎", "\n") for line in lines if not line.startswith("## ")]


def judge(rules: Rules, command: str, files: Files | None = None) -> str:
    arguments = {"command": command}
    return rules.judge(
        Asked(tool="bash", effect="execute", risk="high", agent="a", arguments=arguments, files=files)
    ).action


def options() -> dict[str, list[str]]:
    """Every long option that the programs of the rules say they have."""
    found: dict[str, list[str]] = {"git": []}
    for words in RULES:
        if words[0] == "git":
            said = _said(["git", *words[1:2], "--git-completion-helper-all"])
            found["git"] += [each.removesuffix("=") for each in said.split() if each.startswith("-")]
        elif shutil.which(words[0]):
            listed = sorted(set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", _said([words[0], "--help"]))))
            found[words[0]] = [each for each in listed if each not in ("-f", "-F", "--follow")]
    return found


def _said(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False).stdout


def _told(name: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments without options of git that change nothing of what it does: rules look through them."""
    while name == "git" and arguments:
        if arguments[0] in ("--no-pager", "-P", "--no-optional-locks"):
            arguments = arguments[1:]
        elif arguments[0] == "-C" and arguments[1:2] in ((".",), ("./",)):
            arguments = arguments[2:]
        else:
            break
    return arguments


def beyond(stage: Stage, done: Done) -> str:
    """What a command did that the rules do not say; nothing if that is nothing."""
    for ran in done.ran:
        folder, _, name = ran.name.rpartition("/")
        argv = (name, *_told(name, ran.arguments))
        meant = any(argv[: len(rule)] == rule and (rule[0] != "make" or argv == rule) for rule in RULES)
        if not meant or folder != str(stage.programs):
            return f"ran {argv}"
        seen = re.sub(r"\|[^|]*libstdbuf\.so\|", "||", ran.surroundings)
        folders = FOLDERS if name not in ("git", "make") else ("",)
        if seen not in map(stage.surroundings, folders):
            return f"ran {argv} with {seen}"
    return f"wrote {done.wrote}" if done.wrote else ""


def allow_trial(folder: Path, seed: int, count: int, real_every: int) -> dict[str, Any]:
    programs = {rule[0] for rule in RULES}
    known = options()
    stubs = Stage(folder / "stubs", stubs={*programs, *OTHERS}, real=WRAPPERS, through=("time",))
    real = Stage(folder / "real", stubs=OTHERS, real={*programs, *WRAPPERS}, through=("time",))
    sealed = confine(folder)
    rules = Rules.of(ApprovalSettings(allow=tuple(published())))
    files = Files(project=stubs.work, workspace=None)
    draw = Commands(seed, everyday(), known)
    seen: set[int] = set()
    found: dict[str, Any] = {
        "generated": 0,
        "allowed": 0,
        "distinct": 0,
        "programs": 0,
        "real": 0,
        "timed_out": 0,
        "beyond": [],
    }
    for number in range(count):
        command = draw()
        found["generated"] += 1
        if judge(rules, command, files) != "allow":
            continue
        found["allowed"] += 1
        if hash(command) in seen:
            continue
        seen.add(hash(command))
        found["distinct"] += 1
        os.chdir(stubs.work)
        locale = stubs.locales[number % len(stubs.locales)]
        done = stubs.run(command, locale=locale, code=number // 3 % 2)
        found["programs"] += len(done.ran)
        wrong = beyond(stubs, done)
        if not wrong and found["distinct"] % real_every == 0:
            os.chdir(real.work)
            found["real"] += 1
            done = real.run(command, locale=locale)
            wrong = (
                f"really ran {done.ran}" if done.ran else f"really wrote {done.wrote}" if done.wrote else ""
            )
        found["timed_out"] += done.timed_out
        if wrong and len(found["beyond"]) < MOST_KEPT:
            found["beyond"].append([command, locale, wrong])
    return {**found, "sealed": sealed, "locales": stubs.locales}


def deny_trial(folder: Path, seed: int, count: int, real_every: int) -> dict[str, Any]:
    """Runs what is not denied and not asked about; of the rest one in `real_every`, to know how many really ran."""
    stage = Stage(
        folder / "stage",
        stubs=("git-push", "mark"),
        real=Disguises.PROGRAMS,
        through=("sudo", "doas"),
        traced=("git",),
    )
    sealed = confine(folder)
    rules = Rules.of(ApprovalSettings(allow=("bash",), deny=("bash(git push*)",)))
    draw = Disguises(seed, str(stage.programs))
    found: dict[str, Any] = {
        "generated": 0,
        "run": 0,
        "ran": 0,
        "deny": 0,
        "ask": 0,
        "allow": 0,
        "timed_out": 0,
        "beyond": [],
    }
    for number in range(count):
        command = draw()
        found["generated"] += 1
        verdict = judge(rules, command)
        if verdict != "allow" and number % real_every:
            continue
        found["run"] += 1
        done = stage.run(command)
        found["timed_out"] += done.timed_out
        if not ran_push(done):
            continue
        found["ran"] += 1
        found[verdict] += 1
        if verdict == "allow" and len(found["beyond"]) < MOST_KEPT:
            found["beyond"].append([command, "", "ran git push"])
    return {**found, "sealed": sealed}


TRIALS = {"allow": allow_trial, "deny": deny_trial}


def shares(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The trial in processes of their own, which seal themselves; each draws from its own seed."""
    own = [sys.executable, __file__, args.trial, "--commands", str(args.commands // args.jobs)]
    own += ["--real-every", str(args.real_every)]
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(
                [*own, "--seed", str(args.seed + number), "--folder", f"{Path(folder).resolve()}/{number}"],
                stdout=subprocess.PIPE,
            )
            for number in range(args.jobs)
        ]
        for each in started:
            yield json.loads(each.communicate()[0])


def added(parts: Iterator[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            adds = isinstance(value, int | list) and not isinstance(value, bool) and name != "locales"
            total[name] = total[name] + value if adds and name in total else total.get(name, value)
    return total


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("trial", choices=TRIALS)
    parser.add_argument("--commands", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--real-every", type=int, default=1, help="one in so many also runs with the real programs"
    )
    parser.add_argument("--folder", type=Path, help="where one share of it runs; for the trial's own use")
    args = parser.parse_args()
    if args.folder is not None:
        print(json.dumps(TRIALS[args.trial](args.folder, args.seed, args.commands, args.real_every)))
        return 0
    found = {"seed": args.seed, **added(shares(args))}
    print(json.dumps(found))
    return 1 if found["beyond"] else 0


if __name__ == "__main__":
    sys.exit(main())
