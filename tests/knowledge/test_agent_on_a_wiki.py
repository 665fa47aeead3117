"""`retinue run web-knowledge` as a person runs it: the command, the offline model, a real MediaWiki."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import servers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
CLOSED = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.mediawiki(tmp_path_factory.mktemp("wiki")) as url:
        yield url


def retinue(folder: Path, wiki: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command in an empty folder. Every source but the wiki refuses the connection."""
    config = folder / "config.toml"
    config.write_text(
        f"""[knowledge]
contact = "ops@example.org"
[knowledge.base_urls]
wikipedia = "{wiki}"
wikidata = "{CLOSED}"
duckduckgo = "{CLOSED}"
""",
        "utf-8",
    )
    (folder / "empty").mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_BASE_URL"))}
    return subprocess.run(
        [sys.executable, "-m", "retinue", *arguments],
        cwd=folder / "empty",
        env={
            **kept,
            "RETINUE_CONFIG": str(config),
            "RETINUE_DB": f"sqlite:///{folder}/runs.db",
            "RETINUE_MODEL": "offline",
            "NO_COLOR": "1",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def cited(bullet: str) -> str:
    return bullet.partition(" Source: ")[2]


def test_who_was_alan_turing_is_answered_in_bullets_each_with_a_verified_source(
    wiki: str, tmp_path: Path
) -> None:
    done = retinue(tmp_path, wiki, "run", "web-knowledge", "Who was Alan Turing?", "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    bullets = [line for line in report["text"].splitlines() if line.startswith("- ")]
    assert len(bullets) >= 2
    assert "mathematician who asked whether machines can think" in bullets[0]
    verified = {source["url"] for source in report["sources"] if source["verified"]}
    assert all(cited(bullet).startswith(wiki) for bullet in bullets)
    assert {cited(bullet) for bullet in bullets} <= verified
    assert "duckduckgo" in report["text"]  # what could not be asked is said


def test_every_lookup_of_the_agent_is_in_its_log_with_the_source_it_gave(wiki: str, tmp_path: Path) -> None:
    done = retinue(tmp_path, wiki, "run", "web-knowledge", "What is a Turing machine?", "--events")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    returned = [event for event in events if event["type"] == "tool_returned" and not event.get("is_error")]
    assert [event["name"] for event in returned][:1] == ["wiki_search"]
    assert "wiki_summary" in [event["name"] for event in returned]
    assert all(event["sources"] for event in returned)


def test_knowledge_first_answers_the_main_question_with_the_wikis_words_and_sources(
    wiki: str, tmp_path: Path
) -> None:
    question = ("ask", "Who was Ada Lovelace?", "--json")
    done = retinue(tmp_path, wiki, *question, RETINUE_KNOWLEDGE_FIRST="true")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["agent"] == "general"
    assert report["tool_calls"] == 0  # it was there before the first step
    assert "wrote notes on an engine" in report["text"]
    assert any(source["verified"] and source["url"].startswith(wiki) for source in report["sources"])
    again = json.loads(retinue(tmp_path, wiki, *question, RETINUE_KNOWLEDGE_FIRST="true").stdout)
    assert (again["text"], again["problems"]) == (report["text"], [])


def test_with_the_wiki_gone_the_main_agent_goes_on(tmp_path: Path) -> None:
    done = retinue(tmp_path, CLOSED, "ask", "Who was Ada Lovelace?", "--json", RETINUE_KNOWLEDGE_FIRST="true")
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["status"] == "completed"
    # The offline agent then asks web-knowledge itself: that child it does lack, the lookup before it not.
    assert (done.returncode, report["shortfall"]["incomplete"]) == (3, 1), done.stderr
    assert ["web-knowledge found nothing that can be used" in each for each in report["problems"]] == [True]
