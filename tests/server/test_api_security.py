"""Who may: tokens, roles, hosts, origins, forms, sizes, rates, headers, cookies, the log."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest
from api import SECRETS, Api, serving, tokens
from hypothesis import given
from hypothesis import strategies as st

from retinue.errors import ConfigError
from retinue.server.guard import HEADERS
from retinue.server.limits import Buckets, RateLimits
from retinue.server.schema import openapi
from retinue.server.security import ROLES, Access, Token, same_origin, split_host
from retinue.server.tokens import TokenChanges, grant, revoke, write
from retinue.testing import ScriptedModel, Step, call
from retinue.tools.base import tool


@tool(effect="write")
async def mark(what: str) -> str:
    """Leave a mark."""
    return f"marked {what}"


def every_route(api: Api) -> list[tuple[str, str, str]]:
    """Method, path and role of every operation, from the server's own description."""
    return [
        (method.upper(), path, operation["x-role"])
        for path, operations in openapi(api.app)["paths"].items()
        for method, operation in operations.items()
    ]


async def test_without_a_token_there_is_no_entry_anywhere(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, with_tokens=True) as nobody:
        routes = every_route(nobody)
        assert len(routes) > 25
        for method, path, role in routes:
            answer = await nobody(method, path.replace("{run_id}", "r1").replace("{approval_id}", "r1:c"), {})
            if role == "none":
                assert path in ("/api/v1/health", "/api/v1/login")
            else:
                assert (answer.status, answer.code) == (401, "no_token"), (method, path)
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert (await nobody("GET", "nothing/here")).status == 401
        assert (await nobody("GET", "openapi.json")).status == 401


async def test_headers_without_an_end_are_refused(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(api.url.split(":")[2].split("/")[0]))
        writer.write(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000)
        async with asyncio.timeout(60):
            assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.close()


async def test_a_wrong_token_is_no_token(folder: Path) -> None:
    right = SECRETS["admin"]
    async with serving(ScriptedModel([]), folder, with_tokens=True) as nobody:
        for header in ("Bearer ", "Bearer wrong", f"Basic {right}", right, f"Bearer {right}x", "Bearer \xff"):
            answer = await nobody("GET", "me", headers={"Authorization": header})
            assert (answer.status, answer.code) == (401, "wrong_token"), header


async def test_one_role_cannot_do_anothers(folder: Path) -> None:
    """Every operation, by every role: refused exactly where the role is too low."""
    async with serving(ScriptedModel(lambda r: "done"), folder, with_tokens=True) as nobody:
        for method, path, needed in every_route(nobody):
            if needed == "none" or path.endswith("/stream"):
                continue
            for role in ROLES:
                real = path.replace("{run_id}", "r0").replace("{approval_id}", "r0:c").replace("{name}", "x")
                answer = await nobody.as_role(role)(method, real, {} if method != "GET" else None)
                too_low = ROLES.index(role) < ROLES.index(needed)
                assert (answer.status == 403) == too_low, (role, method, path, answer)
                if too_low:
                    assert answer.body["error"]["details"] == {"role": role, "needs": needed}


async def test_roles_in_words(folder: Path) -> None:
    async with serving(
        ScriptedModel([call("mark", what="x"), "done"]), folder, with_tokens=True, tools=[mark]
    ) as api:
        watcher, asker, approver, admin = (api.as_role(role) for role in ROLES)
        assert (await watcher("POST", "runs", {"prompt": "x"})).status == 403
        run_id = await asker.ask()
        async with asyncio.timeout(60):
            while not (found := (await watcher.get("approvals"))["approvals"]):
                await asyncio.sleep(0.01)
        path = f"approvals/{found[0]['approval_id']}"
        assert (await asker("POST", path, {"decision": "approve"})).status == 403
        await approver.post(path, {"decision": "approve"})
        await watcher.ended(run_id)
        assert (await approver("DELETE", f"runs/{run_id}")).status == 403
        assert (await admin("DELETE", f"runs/{run_id}")).status == 204
        harmless, dangerous = {"sheets.enabled": False}, {"approvals.allow": ["bash"]}
        assert (await asker("PUT", "settings", {"settings": harmless})).status == 403
        assert (await approver("PUT", "settings", {"settings": harmless})).status == 200
        assert (await approver("PUT", "settings", {"settings": dangerous})).status == 403
        assert (await approver("PUT", "settings", {"settings": harmless | dangerous})).status == 403
        assert (await admin("PUT", "settings", {"settings": dangerous})).status == 200


async def test_whoever_may_not_widen_may_still_narrow(folder: Path) -> None:
    set_to = {"limits.max_cost": 1.0, "limits.max_turns": 10}
    async with serving(ScriptedModel(lambda r: "done"), folder, with_tokens=True, settings=set_to) as api:
        asker, admin = api.as_role("ask"), api.as_role("admin")
        for settings in ({"limits.max_cost": 0.5}, {"limits.max_turns": 10}, {"delegation.policy": "flat"}):
            assert (await asker("POST", "runs", {"prompt": "x", "settings": settings})).status == 201, (
                settings
            )
        for settings in (
            {"limits.max_cost": 2.0},
            {"limits.max_cost": None},
            {"limits.max_turns": 11},
            {"delegation.policy": "nested"},
            {"limits.tree_turns": "none"},
        ):
            assert (await asker("POST", "runs", {"prompt": "x", "settings": settings})).status == 403, (
                settings
            )
            assert (await admin("POST", "runs", {"prompt": "x", "settings": settings})).status == 201, (
                settings
            )
        away = {"prompt": "x", "model": "http://evil.example/v1#m"}
        assert (await asker("POST", "runs", away)).status == 403


async def test_a_run_that_needs_no_approvals_takes_orders_only_from_approvers(folder: Path) -> None:
    async with serving(ScriptedModel(lambda r: "done"), folder, with_tokens=True, yes=True) as api:
        asker, approver = api.as_role("ask"), api.as_role("approve")
        run_id = await asker.ask()
        await asker.ended(run_id)
        for path, body in (
            ("message", {"text": "rm -rf"}),
            ("resume", {"message": "rm -rf"}),
            ("fork", {"message": "rm -rf"}),
        ):
            refused = await asker("POST", f"runs/{run_id}/{path}", body)
            assert (refused.status, refused.code) == (403, "forbidden"), path
        await approver.post(f"runs/{run_id}/message", {"text": "go on"})


async def test_a_run_with_a_standing_approval_takes_orders_only_from_approvers(folder: Path) -> None:
    model = ScriptedModel([call("mark", what="x"), "done", "more"])
    async with serving(model, folder, with_tokens=True, tools=[mark]) as api:
        asker, approver = api.as_role("ask"), api.as_role("approve")
        run_id = await asker.ask()
        async with asyncio.timeout(60):
            while not (found := (await asker.get("approvals"))["approvals"]):
                await asyncio.sleep(0.01)
        await approver.post(f"approvals/{found[0]['approval_id']}", {"decision": "approve_run"})
        await asker.ended(run_id)
        refused = await asker("POST", f"runs/{run_id}/fork", {"message": "mark everything"})
        assert (refused.status, refused.code) == (403, "forbidden")
        assert (await approver("POST", f"runs/{run_id}/message", {"text": "go on"})).status == 200


async def test_a_host_header_that_is_not_this_machine_is_refused(folder: Path) -> None:
    """A page whose name was turned to 127.0.0.1 (DNS rebinding) still sends its own name."""
    async with serving(ScriptedModel([]), folder) as api:
        port = api.url.rpartition(":")[2]
        names = ("evil.example", f"evil.example:{port}", f"localhost.evil.example:{port}", f"@:{port}")
        for host in (*names, "localhost", "127.0.0.1:1", ""):
            for path in ("me", "health", "/"):
                answer = await api("GET", path, headers={"Host": host})
                assert (answer.status, answer.code) == (421, "wrong_host"), (host, path)
        for good in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST"):
            assert (await api("GET", "me", headers={"Host": f"{good}:{port}"})).status == 200


async def test_with_tokens_addresses_and_given_names_are_hosts_and_others_are_not(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, with_tokens=True, hosts=("agents.example.org",)) as nobody:
        api = nobody.as_role("watch")
        for host in ("192.168.1.5:8484", "[fe80::1]", "agents.example.org", "agents.example.org:443"):
            assert (await api("GET", "me", headers={"Host": host})).status == 200, host
        for host in ("evil.example", "example.org", "agents.example.org.evil"):
            assert (await api("GET", "me", headers={"Host": host})).status == 421, host


def test_other_names_need_tokens() -> None:
    with pytest.raises(ConfigError, match="token"):
        Access(hosts=["agents.example.org"])


async def test_a_change_from_another_site_is_refused(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        for headers in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://localhost:1"},
            {"Origin": "https://127.0.0.1"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site", "Origin": api.url},
        ):
            answer = await api("POST", "runs", {"prompt": "x"}, headers=headers)
            assert (answer.status, answer.code) == (403, "wrong_origin"), headers
        assert (await api.get("runs"))["runs"] == []


async def test_a_change_from_the_page_itself_or_from_no_page_is_taken(folder: Path) -> None:
    async with serving(ScriptedModel(lambda r: "done"), folder) as api:
        for headers in ({"Origin": api.url, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}):
            assert (await api("POST", "runs", {"prompt": "x"}, headers=headers)).status == 201


async def test_reading_from_another_sites_page_is_refused_too(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        assert (await api("GET", "runs", headers={"Sec-Fetch-Site": "cross-site"})).status == 403


async def test_what_a_form_of_another_site_can_send_is_no_change(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            answer = await api("POST", "runs", data=b'{"prompt": "x"}', headers={"Content-Type": kind})
            assert (answer.status, answer.code) == (415, "not_json"), kind
        assert (await api.get("runs"))["runs"] == []


def test_an_origin_is_this_host_with_the_same_port() -> None:
    assert same_origin("http://localhost:8484", "localhost:8484")
    assert same_origin("https://agents.example.org", "agents.example.org")
    assert same_origin("http://[::1]:8484", "[::1]:8484")
    for origin, host in (
        ("http://localhost", "localhost:8484"),
        ("http://localhost:8484.evil", "localhost:8484"),
        ("http://evil@localhost:8484", "localhost:8484"),
        ("http://localhost:8484/x", "localhost:8484"),
        ("file://localhost:8484", "localhost:8484"),
        ("", ""),
        ("http://", ""),
    ):
        assert not same_origin(origin, host), (origin, host)


@given(st.text(max_size=60))
def test_no_host_header_breaks_the_reading(host: str) -> None:
    name, port = split_host(host)
    assert name == name.lower()
    assert port is None or 0 <= port <= 65535


async def test_a_login_gives_a_cookie_that_scripts_and_other_sites_cannot_use(folder: Path) -> None:
    async with serving(ScriptedModel(lambda r: "done"), folder, with_tokens=True) as nobody:
        port = nobody.url.rpartition(":")[2]
        answer = await nobody("POST", "login", {"token": SECRETS["ask"]})
        assert answer.body == {"name": "ask", "role": "ask"}
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith(f"retinue_{port}=")
        assert {"HttpOnly", "Path=/", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
        assert SECRETS["ask"] not in cookie
        # The session keeps the cookie from here on, as a browser does.
        assert (await nobody.get("me"))["role"] == "ask"
        unsaid = await nobody("POST", "runs", {"prompt": "x"})
        assert (unsaid.status, unsaid.code) == (403, "wrong_origin")
        assert "Origin" in unsaid.body["error"]["fix"]
        own = {"Origin": nobody.url}
        assert (await nobody("POST", "runs", {"prompt": "x"}, headers=own)).status == 201
        foreign = await nobody("POST", "runs", {"prompt": "x"}, headers={"Origin": "http://evil.example"})
        assert foreign.status == 403
        copied = {"Cookie": cookie.partition(";")[0]}
        assert (await nobody("GET", "me", headers=copied)).status == 200
        await nobody.post("logout", headers=own)
        assert (await nobody("GET", "me")).status == 401
        assert (await nobody("GET", "me", headers=copied)).status == 401, "also to who kept a copy of it"
        secure = await nobody(
            "POST", "login", {"token": SECRETS["ask"]}, headers={"Origin": f"https://127.0.0.1:{port}"}
        )
        assert "Secure" in secure.headers["Set-Cookie"]


def test_tokens_are_read_again_when_their_file_has_changed(tmp_path: Path) -> None:
    file, fixed = tmp_path / "tokens.json", Token.of("environment", "admin", "set-from-the-outside")
    grant(file, [("alice", "ask")])
    changes = TokenChanges(file, [fixed])
    later = itertools.count(time.monotonic() + 1)
    assert changes(next(later)) is None
    revoke(file, "alice")
    assert changes(next(later)) == [fixed]
    assert changes(next(later)) is None
    file.write_text("not a list of tokens")
    assert changes(next(later)) == [fixed], "what cannot be read lets nobody in"
    bob = Token.of("bob", "watch", "a-secret-of-bob-that-is-long")
    write(file, [bob])
    assert changes(next(later)) == [bob, fixed]


@given(st.text(max_size=200))
def test_no_made_up_cookie_is_a_session(cookie: str) -> None:
    assert Access(tokens()).by_session(cookie) is None


def test_a_short_secret_is_refused_and_no_secret_is_kept() -> None:
    with pytest.raises(ConfigError, match="16"):
        Token.of("me", "admin", "short")
    kept = Token.of("me", "admin", "a-secret-that-is-long")
    assert "a-secret" not in repr(kept)


async def test_guessing_tokens_gets_slower_and_locks_nobody_else_out(folder: Path) -> None:
    limits = RateLimits(wrong_tokens_burst=5, wrong_tokens=0.001)
    async with serving(ScriptedModel([]), folder, with_tokens=True, limits=limits) as nobody:
        found = [await nobody("POST", "login", {"token": f"guess {n}"}) for n in range(7)]
        assert [answer.status for answer in found] == [401] * 5 + [429] * 2
        assert int(found[-1].headers["Retry-After"]) > 100
        # A header is no other form of guessing.
        guess = {"Authorization": "Bearer guess of a token"}
        assert (await nobody("GET", "me", headers=guess)).status == 429
        # Behind a proxy all have this address: whoever has a right token is let in as ever.
        assert (await nobody.as_role("ask")("GET", "me")).status == 200
        assert (await nobody("POST", "login", {"token": SECRETS["ask"]})).status == 200


async def test_too_many_requests_are_told_when_to_come_back(folder: Path) -> None:
    limits = RateLimits(requests=0.01, requests_burst=5, starts=0.01, starts_burst=2)
    async with serving(ScriptedModel(lambda r: "done"), folder, with_tokens=True, limits=limits) as nobody:
        watcher, asker = nobody.as_role("watch"), nobody.as_role("ask")
        found = [await watcher("GET", "me") for _ in range(7)]
        assert [answer.status for answer in found] == [200] * 5 + [429] * 2
        assert (found[-1].code, int(found[-1].headers["Retry-After"]) >= 1) == ("too_many_requests", True)
        starts = [await asker("POST", "runs", {"prompt": "x"}) for _ in range(3)]
        assert [answer.status for answer in starts] == [201, 201, 429]


def test_a_bucket_fills_up_again_and_never_beyond_its_size() -> None:
    bucket = Buckets(rate=2, burst=3)
    assert [bucket.take("a", now=0) > 0 for _ in range(4)] == [False, False, False, True]
    assert bucket.take("b", now=0) == 0
    assert bucket.take("a", now=0.25) == pytest.approx(0.25)
    assert bucket.take("a", now=0.5) == 0
    assert [bucket.take("a", now=1000) > 0 for _ in range(4)] == [False, False, False, True]


async def test_an_oversize_body_is_refused(folder: Path) -> None:
    async with serving(
        ScriptedModel([]), folder, limits=RateLimits(body_bytes=1000, start_bytes=2000)
    ) as api:
        big = await api("POST", "runs", {"prompt": "x" * 3000})
        assert (big.status, big.code) == (413, "too_large")

        async def pieces() -> Any:
            for _ in range(100):
                yield b" " * 100

        headers = {"Content-Type": "application/json"}
        chunked = await api("POST", "render", data=pieces(), headers=headers)
        assert (chunked.status, chunked.code) == (413, "too_large")
        assert (await api.get("runs"))["runs"] == []


async def test_whoever_sends_too_much_gets_to_read_why(folder: Path) -> None:
    """Most clients send all of it before they look at the answer."""
    async with serving(ScriptedModel([]), folder, limits=RateLimits(body_bytes=1000)) as api:
        host, port = api.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        size = 5_000_000
        head = f"POST /api/v1/render HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {size}\r\n\r\n".encode())
        for _ in range(size // 50_000):
            writer.write(b" " * 50_000)
            await writer.drain()
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"at most 1,000 are taken" in answer


async def test_a_body_that_never_comes_is_not_waited_for(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, limits=RateLimits(body_seconds=0.2)) as api:
        port = int(api.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /api/v1/render HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        writer.write((head + "Content-Length: 100\r\n\r\n{").encode())
        async with asyncio.timeout(60):
            assert b" 408 " in await reader.readline()
        writer.close()


async def test_a_body_that_is_too_deep_is_refused(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        deep = b'{"prompt": "x", "settings": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}"
        answer = await api("POST", "runs", data=deep, headers={"Content-Type": "application/json"})
        assert answer.status in (400, 422)
        assert set(answer.body) == {"error"}


async def test_one_client_holds_only_so_many_streams(folder: Path) -> None:
    gate = asyncio.Event()
    async with serving(
        ScriptedModel([Step(text="x", gate=gate)]), folder, limits=RateLimits(streams=2)
    ) as api:
        run_id = await api.ask()
        held = [api.stream(f"runs/{run_id}/stream") for _ in range(2)]
        for stream in held:
            await anext(stream)
        refused = await api("GET", f"runs/{run_id}/stream")
        assert (refused.status, refused.code) == (429, "too_many_requests")
        for stream in held:
            await stream.aclose()
        async with asyncio.timeout(60):
            while api.server.streams["person"]:
                await asyncio.sleep(0.01)
        gate.set()
        assert (await api.ended(run_id))[-1]["type"] == "run_finished"


async def test_every_answer_carries_the_security_headers(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, with_tokens=True) as nobody:
        watcher = nobody.as_role("watch")
        for answer in (
            await watcher("GET", "me"),
            await watcher("GET", "nothing"),
            await nobody("GET", "me"),
            await nobody("GET", "/"),
            await nobody("GET", "me", headers={"Host": "evil.example"}),
        ):
            for name, value in HEADERS:
                assert answer.headers[name.decode().title()] == value.decode()
            assert "Server" not in answer.headers
        policy = (await watcher("GET", "me")).headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert (await watcher("GET", "me")).headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in (await watcher("GET", "me")).headers


async def test_the_log_says_who_did_what_and_never_a_token(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(ScriptedModel(lambda r: "done"), folder, with_tokens=True) as nobody:
        await nobody.as_role("ask")("GET", "runs?text=secret-query")
        await nobody("POST", "login", {"token": SECRETS["admin"]})
        await nobody("GET", "me", headers={"Authorization": "Bearer secret-wrong"})
        await nobody("GET", "runs/%0Afake%20line")
        await nobody.as_role("ask")("POST", "runs", {"prompt": "secret-prompt"})
        lines = [record.getMessage() for record in caplog.records if record.name == "retinue.server.access"]
        assert re.fullmatch(r"GET /api/v1/runs 200 \d+\.\d ms ask:ask", lines[0])
        assert re.fullmatch(r"GET /api/v1/me 401 \d+\.\d ms -", lines[2])
        assert "\n" not in lines[3]
        said = "\n".join(
            record.getMessage() for record in caplog.records if record.name.startswith(("retinue", "uvicorn"))
        )
        for secret in (*SECRETS.values(), "secret-query", "secret-prompt", "secret-wrong"):
            assert secret not in said


async def test_a_mistake_inside_tells_nothing_outside(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        api.server.retinue = None  # pyright: ignore[reportAttributeAccessIssue]  # nothing can work now
        answer = await api("GET", "runs")
        assert (answer.status, answer.code) == (500, "internal")
        assert "None" not in str(answer.body)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "AttributeError" in caplog.text


async def test_the_page_is_open_to_all_and_has_no_script_inside(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, with_tokens=True) as nobody:
        page = await nobody("GET", "/")
        assert page.status == 200
        assert page.headers["Content-Type"].startswith("text/html")
        text = page.body.decode()
        assert not re.search(r"<script(?![^>]*\ssrc=)[^>]*>|<style|\son\w+=|\sstyle=|javascript:", text, re.I)
        assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", text), "nothing comes from elsewhere"
        script = re.search(r'src="([^"]+)"', text)
        assert script
        file = await nobody("GET", "/" + script[1].lstrip("/"))
        assert file.status == 200
        assert "javascript" in file.headers["Content-Type"]
        again = await nobody(
            "GET", "/" + script[1].lstrip("/"), headers={"If-None-Match": file.headers["ETag"]}
        )
        assert again.status == 304


async def test_nothing_but_the_page_is_served(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        port = int(api.url.rpartition(":")[2])
        for path in ("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/js/../../app.py", "//etc/passwd"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            async with asyncio.timeout(60):
                answer = await reader.read()
            assert b" 404 " in answer.split(b"\r\n")[0], path
            assert b"create_app" not in answer
            writer.close()
