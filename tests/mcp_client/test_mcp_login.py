"""Servers that ask for OAuth, against a real authorization server and with `retinue mcp login` as a process."""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp.shared.auth import OAuthToken

from mcp_authorization import Guarded, guarded_server
from mcp_world import World, trusting
from retinue import Retinue
from retinue.events import Event, ToolReturned
from retinue.mcp.login import ServerLogin, forget_login, keep_login, kept_login, login_file
from retinue.mcp.servers import list_server
from retinue.secret_names import is_secret
from retinue.testing import call

BROWSER = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1]).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
"""


async def retinue(world: World, *arguments: str) -> tuple[int, str]:
    """The command line in the project; the browser is a program that follows redirects."""
    script = world.folder / "browser.py"
    script.write_text(BROWSER)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "retinue", *arguments),
        cwd=world.project,
        env={**os.environ, "BROWSER": f"{sys.executable} {script} %s"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def logged_in(world: World, place: Guarded) -> str:
    world.add("shop", {"url": place.url})
    code, said = await retinue(world, "mcp", "trust", "shop", "--start-only")
    assert code == 0, said
    code, said = await retinue(world, "mcp", "login", "shop")
    assert code == 0, said
    return said


async def answers(world: World) -> tuple[list[ToolReturned], list[Event]]:
    seen: list[Event] = []
    async with world.open(
        [call("mcp__shop__tell")], settings={"approvals.allow": ["mcp__shop__*"]}
    ) as retinue:
        found = await _results(retinue, seen)
    return found, seen


async def _results(retinue: Retinue, seen: list[Event]) -> list[ToolReturned]:
    async for event in retinue.stream("general", "go"):
        if isinstance(event, Event):
            seen.append(event)
    return [each for each in seen if isinstance(each, ToolReturned)]


async def test_a_person_logs_in_with_a_browser_and_agents_use_the_server(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded_server() as place:
        said = await logged_in(world, place)
        found, seen = await answers(world)
        secrets = place.issuer.every_secret
        assert "you are logged in at shop; it offers 1 tools" in said
        assert "You are logged in. This window can be closed." in said
        assert "you came with Bearer ***" in found[0].text
        assert place.heard[-1].startswith("Bearer access-")
    assert login_file().stat().st_mode & 0o777 == 0o600
    assert is_secret(str(login_file()))
    kept = login_file().read_text()
    assert any(secret in kept for secret in secrets)
    everything = "\n".join((said, repr(seen), caplog.text, repr(kept_login(place.url))))
    assert not [secret for secret in secrets if secret in everything]


async def test_what_a_server_returns_behind_a_login_is_private(world: World) -> None:
    async with guarded_server() as place:
        await logged_in(world, place)
        async with world.open([call("mcp__shop__tell"), call("mcp__shop__tell")]) as retinue:
            await trusting(retinue)
            found = await _results(retinue, [])
    assert [each.not_run for each in found] == ["", "unattended"]
    assert found[0].private == ("what mcp__shop__tell returned",)


async def test_without_a_person_a_call_says_how_to_log_in_and_nothing_is_registered(world: World) -> None:
    async with guarded_server() as place:
        await logged_in(world, place)
        clients = len(place.issuer.clients)
        code, said = await retinue(world, "mcp", "logout", "shop")
        assert (code, "is forgotten" in said) == (0, True)
        found, _ = await answers(world)
        assert found[0].is_error
        assert "the MCP server shop wants a login" in found[0].text
        assert "'retinue mcp login shop'" in found[0].text
        code, said = await retinue(world, "mcp", "test", "shop")
        assert code != 0
        assert "'retinue mcp login shop'" in said
        assert len(place.issuer.clients) == clients
        assert place.heard[-1] == ""


async def test_a_token_that_has_ended_is_renewed_in_another_process(world: World) -> None:
    async with guarded_server() as place:
        await logged_in(world, place)
        keep_login(place.url, lambda kept: msgspec.structs.replace(kept, expires_at=1.0))
        found, _ = await answers(world)
        assert "you came with Bearer ***" in found[0].text
        assert place.issuer.renewed == 1
        await answers(world)
        assert place.issuer.renewed == 1, "what was renewed is kept"


async def test_a_token_that_was_taken_back_is_renewed_without_a_person(world: World) -> None:
    async with guarded_server() as place:
        await logged_in(world, place)
        place.issuer.revoke_access()
        found, _ = await answers(world)
        assert "you came with Bearer ***" in found[0].text
        assert place.issuer.renewed == 1


async def test_a_login_that_cannot_be_renewed_is_asked_for_again_and_not_lost_before(world: World) -> None:
    async with guarded_server() as place:
        await logged_in(world, place)
        place.issuer.revoke_access()
        place.issuer.refuses = True
        found, _ = await answers(world)
        assert "does not take the login that is kept for it" in found[0].text
        before = login_file().read_text()
        code, said = await retinue(world, "mcp", "login", "shop")
        assert code != 0
        assert "the login was not given: not you" in said
        assert login_file().read_text() == before
        place.issuer.refuses = False
        await logged_in(world, place)
        assert len(place.issuer.clients) == 1, "the server knows us already"


async def test_a_token_goes_to_the_server_that_it_was_issued_for_alone(world: World) -> None:
    async with guarded_server() as place, guarded_server() as other:
        await logged_in(world, place)
        world.add("shop", {"url": other.url})
        async with world.open() as app:
            await trusting(app, "start")
            servers = app.services.mcp
            with pytest.raises(Exception, match="wants a login"):
                await list_server(servers.servers["shop"], servers.means(app.settings.mcp))
        assert set(other.heard) == {""}


async def test_two_that_need_another_token_at_once_renew_it_once(world: World) -> None:
    async with guarded_server() as place:
        await logged_in(world, place)
        async with world.open() as one, world.open() as two:
            listing: list[Any] = []
            for app in (one, two):
                servers = app.services.mcp
                listing.append((servers.servers["shop"], servers.means(app.settings.mcp)))
            place.issuer.revoke_access()
            found = await asyncio.gather(*(list_server(*each) for each in listing))
        assert [len(each.tools) for each in found] == [1, 1]
        assert place.issuer.renewed == 1


async def test_a_login_that_is_forgotten_while_it_is_renewed_stays_forgotten(world: World) -> None:
    async with guarded_server() as place:
        await logged_in(world, place)
        place.issuer.revoke_access()
        place.issuer.goes_on.clear()
        heard = len(place.heard)
        calling = asyncio.create_task(answers(world))
        await place.issuer.asked.wait()
        assert forget_login(place.url)
        place.issuer.goes_on.set()
        found, _ = await calling
        assert place.issuer.renewed == 1
        assert "wants a login" in found[0].text
        assert kept_login(place.url).tokens is None
        given = [token for token in place.issuer.access if token in login_file().read_text()]
        sent = [each for each in place.heard[heard:] if each]
        assert (given, len(sent)) == ([], 1), "what came too late is neither kept nor used"


async def test_a_login_that_is_given_anew_while_an_older_one_is_renewed_is_the_one_that_is_kept(
    world: World,
) -> None:
    async with guarded_server() as place:
        await logged_in(world, place)
        place.issuer.revoke_access()
        place.issuer.goes_on.clear()
        before = kept_login(place.url)
        calling = asyncio.create_task(answers(world))
        await place.issuer.asked.wait()
        forget_login(place.url)
        given = place.issuer.give(next(iter(place.issuer.clients)), ["read"], place.url).model_dump()
        keep_login(place.url, lambda kept: msgspec.structs.replace(before, tokens=given))
        place.issuer.goes_on.set()
        found, _ = await calling
        assert "you came with Bearer ***" in found[0].text
        assert kept_login(place.url).tokens == given


async def test_a_login_that_is_forgotten_before_it_is_renewed_is_not_renewed(world: World) -> None:
    async with guarded_server() as place:
        await logged_in(world, place)
        before = ServerLogin("shop", place.url)
        flow = before.async_auth_flow(httpx2.Request("POST", place.url))
        sent = await anext(flow)
        forget_login(place.url)
        again = await flow.asend(httpx2.Response(401, request=sent))
        assert "Authorization" not in again.headers
        with pytest.raises(StopAsyncIteration):
            await flow.asend(httpx2.Response(401, request=again))
        assert "wants a login" in before.asks
        assert place.issuer.renewed == 0


async def test_a_right_that_is_missing_is_noted_beside_a_token_that_another_renewed_meanwhile(
    world: World,
) -> None:
    url = "https://mcp.example/x"
    tokens = {"access_token": "a1", "token_type": "Bearer", "refresh_token": "r1"}
    keep_login(url, lambda kept: msgspec.structs.replace(kept, tokens=tokens))
    one, two = ServerLogin("shop", url), ServerLogin("shop", url)
    flow = one.async_auth_flow(httpx2.Request("POST", url))
    sent = await anext(flow)
    assert sent.headers["Authorization"] == "Bearer a1"
    renewed = OAuthToken(access_token="a2", token_type="Bearer", refresh_token="r2")
    await two.context.storage.set_tokens(renewed)  # `r1` is used up
    lacking = {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="write"'}
    with pytest.raises(StopAsyncIteration):
        await flow.asend(httpx2.Response(403, headers=lacking, request=sent))
    kept = kept_login(url)
    assert kept.tokens is not None
    assert (kept.tokens["refresh_token"], kept.wanted) == ("r2", "write")
    again = one.async_auth_flow(httpx2.Request("POST", url))
    assert (await anext(again)).headers["Authorization"] == "Bearer a2", "and the first one learns of it"
    await again.aclose()


async def test_an_answer_without_the_state_of_the_login_is_turned_away(world: World) -> None:
    from retinue.mcp.login_page import person_here

    shown: list[str] = []
    async with person_here(kept_login("http://127.0.0.1/mcp"), shown.append) as person:
        await person.show("http://127.0.0.1/authorize?state=right")
        waiting = asyncio.ensure_future(person.answer())

        async def go(query: str) -> str:
            host, _, port = person.redirect.removeprefix("http://").partition("/")[0].partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET /callback?{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            said = (await reader.read()).decode()
            writer.close()
            return said

        assert "no answer to a login" in await go("code=stolen&state=wrong")
        assert not waiting.done()
        assert "You are logged in" in await go("code=good&state=right")
        assert (await waiting).code == "good"


def test_a_file_of_logins_that_is_damaged_is_named(world: World) -> None:
    login_file().parent.mkdir(parents=True)
    login_file().write_text("{")
    with pytest.raises(Exception, match="is not as it was written"):
        kept_login("http://127.0.0.1/mcp")
    login_file().write_text(json.dumps([]))
    assert kept_login("http://127.0.0.1/mcp").tokens is None
    assert Path(login_file()).name == "oauth-tokens.json"
