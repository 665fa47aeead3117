"""What `tsc` holds the page's JavaScript against is what the server says that it answers."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from retinue.server.app import STATIC

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts"))

import page_api


def test_the_types_of_the_page_are_those_of_the_api() -> None:
    assert page_api.FILE.read_text("utf-8") == page_api.types(), "stale: run scripts/page_api.py"


def test_every_call_of_the_page_is_typed_by_what_the_api_answers() -> None:
    script = (STATIC / "js" / "api.js").read_text("utf-8")
    calls = re.findall(r"^  (\w+): ", script.partition("export const api = {")[2].partition("\n};")[0], re.M)
    declared = page_api.FILE.with_name("page.d.ts").read_text("utf-8")
    typed = re.findall(r"^  (\w+)\(.*\): (?:Promise<Api\.Answers|string)", declared, re.M)
    assert sorted(calls) == sorted(typed) != []
