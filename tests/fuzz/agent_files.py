"""Agent files of strangers: read or refused with a reason and a line, never with another error, never widening."""

from __future__ import annotations

import re

from retinue.agents.document import Invalid, parse
from retinue.agents.fields import KNOWN, to_spec

SEEDS = (
    b"---\nname: a\ndescription: b\ntools: [read, grep]\nmax_turns: 3\n---\nYou are a.\n",
    b"---\nname: a\ndescription: use: when\ninput_schema: {q: text}\nmodel: openai:x\n---\nbody",
    b"---\n&a [*a, *a]\n---\nx",
    b"---\nname: !!python/object:os.system {}\n---\nx",
    b"---\ndescription: |\n  a\n  b\ndeny: ['bash(*)']\ndisallowedTools: bash, write\noutput_schema: {a: [b]}\n...\nx",
)
HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def check(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    lines = len(re.split(r"\r\n|\r|\n", text))
    try:
        document = parse(text, "a.md", KNOWN)
    except Invalid as mistake:
        assert mistake.line is None or 1 <= mistake.line <= lines + 1, (mistake.line, lines)
        return
    spec, findings = to_spec(document, "a.md", scope="project", stem="a")
    for finding in findings:
        assert finding.line is None or 1 <= finding.line <= lines + 1, (finding, lines)
        assert not HIDDEN.search(str(finding)), finding
    if spec is None:
        assert any(finding.level == "error" for finding in findings)
        return
    assert not HIDDEN.search(spec.prompt + spec.description + spec.name)
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", spec.name), spec.name
    # A stranger's file names no address that a prompt would be sent to.
    assert "://" not in (spec.model or ""), spec.model
