"""A person's rules about addresses hold for every hop of a redirect, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from local_web import Kept, Site

from retinue.errors import Refused
from retinue.events import AccessDenied, ApprovalRequested, ToolReturned, now
from retinue.store.base import Signal
from retinue.tools.web import web_tools
from retinue.web.fetch import Web
from trees import Stage

PAGE = "<html><body><p>The lamp of the harbour burns for nine hours.</p></body></html>"


def stage_of(web: Web, calls: list[tuple[str, str]], **rules: list[str]) -> Stage:
    """A run that makes these calls one after another, under these rules."""
    named = {"web_fetch": "url", "extract": "source"}
    turns: list[Any] = [[(tool, {named[tool]: url})] for tool, url in calls]
    dotted: dict[str, Any] = {f"approvals__{name}": value for name, value in rules.items()}
    return Stage({"root": [*turns, "done"]}, tools=web_tools(web), answering="ask", **dotted)


async def told(stage: Stage) -> list[ToolReturned]:
    return [event for event in await stage.log() if isinstance(event, ToolReturned)]


async def asked_by(stage: Stage) -> ApprovalRequested:
    async with asyncio.timeout(10):
        while not (found := await stage.store.waiting(stage.root_id)):
            await asyncio.sleep(0.001)
    return found[0]


async def answer(stage: Stage, asked: ApprovalRequested, decision: str) -> None:
    body = json.dumps({"decision": decision})
    key, run_id = asked.approval_id, asked.run_id
    await stage.store.send(
        Signal(root_id=asked.root_id, run_id=run_id, kind="answer", key=key, body=body, at=now())
    )


@pytest.mark.parametrize("tool", ["web_fetch", "extract"])
async def test_a_hop_that_a_rule_denies_is_never_asked_for(web: Web, site: Site, tool: str) -> None:
    site.redirect("/go", "/on")
    site.redirect("/on", "/secret/page")
    site.add("/secret/page", PAGE)
    rule = f"*({site.url('/secret/**')})"
    stage = stage_of(web, [(tool, site.url("/go"))], deny=[rule])
    await stage.run()
    (said,) = await told(stage)
    assert said.is_error
    assert said.text == (
        f"{site.url('/go')} was not fetched: it redirects to {site.url('/secret/page')}, which is denied by the "
        f"rule '{rule}'. Use another source."
    )
    assert said.not_run == "denied"
    assert (site.hits["/on"], site.hits["/secret/page"]) == (1, 0)
    assert [event.detail for event in await stage.log() if isinstance(event, AccessDenied)] == [said.text]


async def test_a_hop_that_needs_a_person_is_refused_until_it_is_asked_for_itself(
    web: Web, site: Site
) -> None:
    site.redirect("/go", "/private/page")
    site.add("/private/page", PAGE)
    private = site.url("/private/page")
    calls = [("web_fetch", site.url("/go")), ("web_fetch", private)]
    stage = stage_of(web, calls, ask=[f"web_fetch({site.url('/private/**')})"])
    task = await stage.start()
    asked = await asked_by(stage)
    assert private in asked.arguments
    assert site.hits["/private/page"] == 0
    await answer(stage, asked, "approve")
    await task
    first, second = await told(stage)
    assert (first.is_error, first.not_run) == (True, "forbidden")
    assert f"it redirects to {private}, which a person must approve by itself" in first.text
    assert first.text.endswith("Call web_fetch with that address if you need it.")
    assert "nine hours" in second.text


@pytest.mark.parametrize(
    ("decision", "follows"), [("approve", False), ("approve_run", False), ("approve_tool", True)]
)
async def test_one_approval_is_for_one_address_and_one_for_the_tool_is_for_all(
    web: Web, site: Site, decision: str, follows: bool
) -> None:
    site.redirect("/go", "/end")
    site.add("/end", PAGE)
    stage = stage_of(web, [("web_fetch", site.url("/go"))], ask=["web_fetch"])
    task = await stage.start()
    await answer(stage, await asked_by(stage), decision)
    await task
    (said,) = await told(stage)
    assert ("nine hours" in said.text, site.hits["/end"]) == (follows, int(follows))


async def test_redirects_that_no_rule_speaks_of_are_followed(web: Web, site: Site) -> None:
    site.redirect("/go", "/end")
    site.add("/end", PAGE)
    stage = stage_of(web, [("web_fetch", site.url("/go"))], deny=["web_fetch(*://evil.example/**)"])
    await stage.run()
    assert "nine hours" in (await told(stage))[0].text


def forbid(part: str) -> Callable[[str], Refused | None]:
    return lambda url: Refused("which is denied.", not_run="denied") if part in url else None


async def test_a_cached_page_is_not_shown_to_who_may_not_reach_it(make_web, site: Site) -> None:
    web = make_web(Kept())
    site.redirect("/go", "/on")
    site.redirect("/on", "/end")
    site.add("/end", PAGE)
    assert (await web.get(site.url("/go"))).url == site.url("/end")
    for part in ("/on", "/end"):
        with pytest.raises(Refused, match="which is denied"):
            await web.get(site.url("/go"), forbid(part))
    assert (await web.get(site.url("/go"), forbid("/other"))).url == site.url("/end")
    assert site.hits["/end"] == 1


async def test_who_asks_for_the_same_at_once_shares_the_hops_and_not_the_rules(web: Web, site: Site) -> None:
    here, go_on = asyncio.Event(), asyncio.Event()

    @site.serve("/go")
    async def slowly(asked) -> None:
        here.set()
        await go_on.wait()
        await asked.reply("", status="302 Found", Location="/end")

    site.add("/end", PAGE)
    url = site.url("/go")
    tasks = [asyncio.create_task(web.get(url, forbids)) for forbids in (forbid("/end"), None, forbid("/x"))]
    await here.wait()
    go_on.set()
    refused, *answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(refused, Refused)
    assert [answer.url for answer in answers if not isinstance(answer, BaseException)] == [
        site.url("/end")
    ] * 2
    assert (site.hits["/go"], site.hits["/end"]) == (1, 1)


async def test_robots_rules_are_followed_only_where_the_person_s_rules_let_a_page(
    web: Web, site: Site
) -> None:
    """By one run they are not read, by another that may they are: what is shared is each hop, not the way."""
    site.redirect("/robots.txt", "/secret/robots.txt")
    site.add("/secret/robots.txt", "User-agent: *\nDisallow: /no\n", kind="text/plain")
    pages = [site.add("/yes", PAGE), site.add("/no", PAGE)]
    stage = stage_of(web, [("web_fetch", page) for page in pages], deny=[f"*({site.url('/secret/**')})"])
    await stage.run()
    assert [said.is_error for said in await told(stage)] == [False, False]
    assert site.hits["/secret/robots.txt"] == 0
    await web.page(site.add("/yes/too", PAGE))
    with pytest.raises(Refused, match="stay away"):
        await web.page(site.url("/no/more"))
    assert site.hits["/secret/robots.txt"] == 1
