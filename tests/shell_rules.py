"""What the tests of rules for commands share: the published rules, everyday commands, and how one is judged."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from retinue.approvals import Rules, Verdict
from retinue.authority.rules import Asked
from retinue.settings import ApprovalSettings
from retinue.workspace import Files

ROOT = Path(__file__).parent.parent


def commands(name: str) -> list[str]:
    """The commands of a file in `tests/data`: one on a line, with `⏎` for a line end."""
    lines = (ROOT / "tests/data" / name).read_text().splitlines()
    return [line.replace("⏎", "\n") for line in lines if not line.startswith("## ")]


EVERYDAY = commands("everyday_commands.txt")


def published() -> list[str]:
    """The rules of the documentation, as it shows them."""
    page = (ROOT / "docs/delegation.md").read_text().partition("### Twenty rules to begin with")[2]
    block = re.search(r"```toml\n(.*?)```", page, re.S)
    assert block is not None
    return tomllib.loads(block[1])["approvals"]["allow"]


def judged(
    command: str,
    allow: Sequence[str] = (),
    ask: Sequence[str] = (),
    deny: Sequence[str] = (),
    files: Files | None = None,
) -> Verdict:
    arguments = {"command": command}
    asked = Asked(
        tool="bash", effect="execute", risk="high", agent="general", arguments=arguments, files=files
    )
    return Rules.of(ApprovalSettings(allow=tuple(allow), ask=tuple(ask), deny=tuple(deny))).judge(asked)


def judge(command: str, allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = ()) -> str:
    return judged(command, allow, ask, deny).action
