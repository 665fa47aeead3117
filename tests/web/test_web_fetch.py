"""Fetching from a web that is slow, broken, huge or lying: what is good comes back, the rest is explained."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
import zlib
from pathlib import Path

import pytest
from local_web import Asked, Kept, Site

from counting import longest_turn
from retinue.errors import Refused, ToolError
from retinue.web.fetch import Web
from retinue.web.guard import Guard

PAGE = "<html><head><title>A page</title></head><body><main><h1>Hello</h1><p>Some words.</p></main></body></html>"


async def failure(web, url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await web.page(url)
    return str(caught.value)


# ---- good pages


async def test_a_page_comes_back_as_markdown_with_its_facts(web, site: Site) -> None:
    fetched = await web.page(site.add("/a", PAGE))
    assert fetched.page.text == "# Hello\n\nSome words."
    source = fetched.source()
    assert (source.url, source.title, source.status, source.verified) == (site.url("/a"), "A page", 200, True)
    assert source.sha256 == fetched.answer.sha256
    assert len(source.sha256 or "") == 64


async def test_it_says_who_it_is_and_sends_nothing_private(make_web, site: Site) -> None:
    site.add("/a", PAGE, Set_Cookie="session=1; Path=/")
    web = make_web(contact="https://operator.example")
    await web.page(site.url("/a"))
    await web.get(site.add("/b", PAGE))
    for asked in site.asked:
        assert asked.headers["user-agent"].startswith("retinue/")
        assert asked.headers["user-agent"].endswith("(+https://operator.example)")
        assert not {"cookie", "authorization", "referer"} & asked.headers.keys()


async def test_the_environment_sets_no_proxy(web, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert (await web.page(site.add("/a", PAGE))).answer.status == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw-deflate", "identity"])
async def test_compressed_pages_are_read(web, site: Site, encoding: str) -> None:
    packed = {
        "gzip": gzip.compress(PAGE.encode()),
        "deflate": zlib.compress(PAGE.encode()),
        "raw-deflate": zlib.compress(PAGE.encode())[2:-4],
        "identity": PAGE.encode(),
    }[encoding]
    url = site.add("/z", packed, Content_Encoding=encoding.removeprefix("raw-"))
    assert "Some words." in (await web.page(url)).page.text


# ---- redirects


async def test_redirects_are_followed_and_remembered(web, site: Site) -> None:
    site.redirect("/1", "/2?x=1", "301 Moved Permanently")
    site.redirect("/2?x=1", "3", "303 See Other")
    site.redirect("/3", site.url("/end#part"), "308 Permanent Redirect")
    site.add("/end", PAGE)
    fetched = await web.page(site.url("/1"))
    assert fetched.answer.url == site.url("/end")
    assert fetched.source().aliases == (site.url("/1"), site.url("/2?x=1"), site.url("/3"))


async def test_a_circle_of_redirects_ends(web, site: Site) -> None:
    site.redirect("/1", "/2")
    site.redirect("/2", "/1")
    assert "redirects in a circle" in await failure(web, site.url("/1"))


async def test_there_is_an_end_to_redirects(web, site: Site) -> None:
    for number in range(30):
        site.redirect(f"/{number}", f"/{number + 1}")
    assert "more than 10 redirects" in await failure(web, site.url("/0"))
    assert sum(site.hits[f"/{number}"] for number in range(30)) == 11


async def test_ten_redirects_are_followed(web, site: Site) -> None:
    for number in range(10):
        site.redirect(f"/{number}", f"/{number + 1}")
    site.add("/10", PAGE)
    assert (await web.page(site.url("/0"))).answer.url == site.url("/10")


@pytest.mark.parametrize("to", ["http://[bad", "http://", "ftp://x/", ""])
async def test_a_redirect_to_nowhere_is_explained(web, site: Site, to: str) -> None:
    site.redirect("/x", to)
    text = await failure(web, site.url("/x"))
    assert "redirects to" in text or "without a place to go" in text or "circle" in text


async def test_a_redirect_in_raw_bytes_leads_where_it_says(web, site: Site) -> None:
    @site.serve("/raw")
    async def raw(asked: Asked) -> None:
        await asked.send(b"HTTP/1.1 302 Found\r\nLocation: /\xe4?x=\xff\r\nContent-Length: 0\r\n\r\n")

    @site.serve("/%E4?x=%FF")
    async def there(asked: Asked) -> None:
        head = b'HTTP/1.1 200 OK\r\nContent-Type: text/html; x=\xff\r\nETag: "\xfe"\r\nContent-Length: %d\r\n\r\n'
        await asked.send(head % len(PAGE) + PAGE.encode())

    assert (await web.page(site.url("/raw"))).answer.url == site.url("/%E4?x=%FF")


# ---- sizes


async def test_a_huge_page_is_read_up_to_the_limit_and_says_so(make_web, site: Site) -> None:
    web = make_web(max_bytes=20_000)
    sent = 0

    @site.serve("/huge")
    async def huge(asked: Asked) -> None:
        nonlocal sent
        await asked.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            await asked.send(b"line of text\n" * 1000)
            sent += 13_000

    fetched = await web.page(site.url("/huge"))
    assert len(fetched.answer.body) == 20_000
    assert "only the first 20,000 bytes were read (web.max_bytes)" in fetched.page.notes
    assert sent < 20_000_000


@pytest.mark.parametrize("layers", [1, 2])
async def test_a_decompression_bomb_costs_no_more_than_the_limit(make_web, site: Site, layers: int) -> None:
    web = make_web(max_bytes=100_000)
    bomb = gzip.compress(b"\0" * 200_000_000 if layers == 1 else gzip.compress(b"a" * 50_000_000), 1)
    url = site.add("/bomb", bomb, kind="text/plain", Content_Encoding="gzip" if layers == 1 else "gzip, gzip")
    import tracemalloc

    tracemalloc.start()
    try:
        with pytest.raises(ToolError):
            await web.page(url)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


async def test_what_is_not_text_is_not_downloaded(web, site: Site) -> None:
    sent = 0

    @site.serve("/film.mp4")
    async def film(asked: Asked) -> None:
        nonlocal sent
        await asked.send(b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 4000000000\r\n\r\n")
        while True:
            await asked.send(bytes(range(256)) * 256)
            sent += 65_536

    text = await failure(web, site.url("/film.mp4"))
    assert "is not text (video/mp4, 4,000,000,000 bytes)" in text
    assert sent < 20_000_000


# ---- time


async def test_a_server_that_says_nothing_is_given_up(make_web, site: Site) -> None:
    web = make_web(timeout=0.3)

    @site.serve("/silent")
    async def silent(asked: Asked) -> None:
        await asked.reader.read()

    assert "0.3 seconds" in await failure(web, site.url("/silent"))


async def test_a_server_that_drips_is_given_up(make_web, site: Site) -> None:
    web = make_web(timeout=0.5, robots=False)

    @site.serve("/drip")
    async def drip(asked: Asked) -> None:
        await asked.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            await asked.send(b"x")
            await asyncio.sleep(0.05)

    assert "took longer than 0.5 seconds (web.timeout)" in await failure(web, site.url("/drip"))


# ---- lies and accidents


async def test_a_page_that_breaks_off_is_kept_as_far_as_it_came(web, site: Site) -> None:
    @site.serve("/short")
    async def short(asked: Asked) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE) + 500}\r\n\r\n"
        await asked.send(head.encode() + PAGE.encode())
        asked.writer.close()

    fetched = await web.page(site.url("/short"))
    assert "Some words." in fetched.page.text
    assert any("ended after" in note for note in fetched.page.notes)


async def test_more_data_than_was_announced_is_not_trusted(web, site: Site) -> None:
    url = site.add("/cut", PAGE + "<p>more</p>", Content_Length=str(len(PAGE)))
    assert "does not answer in valid HTTP" in await failure(web, url)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nBad Header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 9\r\n\r\nnot brot!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
async def test_a_broken_answer_is_an_error_with_a_reason(web, site: Site, raw: bytes) -> None:
    @site.serve("/broken")
    async def broken(asked: Asked) -> None:
        await asked.send(raw)
        asked.writer.close()

    text = await failure(web, site.url("/broken"))
    assert site.url("/broken") in text
    assert "was not fetched" in text or "compressed" in text


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("400 Bad Request", "check it"),
        ("401 Unauthorized", "needs a login"),
        ("403 Forbidden", "refuses programs"),
        ("404 Not Found", "find the page's new place with web_search"),
        ("410 Gone", "removed for good"),
        ("429 Too Many Requests", "rate limited. Try again later"),
        ("451 x", "legal reasons"),
        ("500 x", "the server failed"),
        ("503 x", "the server failed"),
        ("599 x", "the server failed"),
        ("300 x", "without a place to go to"),
        ("302 x", "without a place to go to"),
    ],
)
async def test_a_status_is_explained_with_what_to_do(web, site: Site, status: str, says: str) -> None:
    text = await failure(web, site.add("/s", "x", status=status))
    assert f"answered {status.split()[0]}" in text
    assert says in text


async def test_retry_after_is_passed_on(web, site: Site) -> None:
    url = site.add("/busy", "", status="429 Too Many Requests", Retry_After="37")
    assert "Try again in 37 seconds" in await failure(web, url)
    url = site.add("/down", "", status="503 Service Unavailable", Retry_After="5")
    assert "Try again in 5 seconds" in await failure(web, url)


async def test_a_name_that_does_not_resolve_is_explained(make_web) -> None:
    async def nobody(host: str) -> list[str]:
        return []

    text = await failure(make_web(resolve=nobody, robots=False), "http://nobody.example/")
    assert "the name nobody.example does not resolve" in text


async def test_a_closed_port_is_explained(make_web, make_site) -> None:
    other = await make_site()
    await other.stop()
    text = await failure(make_web(allow_hosts=(other.authority,)), other.url("/"))
    assert f"no connection to 127.0.0.1, port {other.port}" in text


@pytest.fixture
def certificate(tmp_path: Path) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "1", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


async def test_a_certificate_nobody_vouches_for_is_explained(make_web, make_site, certificate) -> None:
    secure = await make_site(tls=certificate)
    secure.add("/", PAGE)
    text = await failure(make_web(allow_hosts=(secure.authority,)), secure.url("/"))
    assert "TLS connection to 127.0.0.1 failed" in text
    assert "self-signed" in text
    assert secure.hits["/"] == 0


async def test_a_server_without_tls_is_explained(make_web) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    authority = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    text = await failure(make_web(robots=False, allow_hosts=(authority,)), f"https://{authority}/")
    server.close()
    assert "TLS connection" in text


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "the URL is empty"),
        ("example.org/page", "https://example.org/page"),
        ("example.org:443/page", "write it in full"),
        ("mailto:a@example.org", "only http and https"),
        ("http://", "no host"),
        ("http://exa mple.org/", "space"),
        ("http://example.org:99999/", "is not a port"),
        ("http://example.org:http/", "is not a port"),
        ("http://[::1", "unfinished IPv6"),
        ("http://-bad-.org/", "not a host name"),
        ("http://" + "a" * 9000, "characters"),
    ],
)
async def test_a_bad_url_is_explained(web, url: str, says: str) -> None:
    assert says in await failure(web, url)


# ---- robots.txt


async def test_robots_are_respected_with_wildcards(web, site: Site) -> None:
    site.add("/robots.txt", "User-agent: *\nDisallow: /private\nDisallow: /*.secret$\n", kind="text/plain")
    site.add("/a", PAGE)
    site.add("/private/x", PAGE)
    site.add("/y.secret", PAGE)
    await web.page(site.url("/a"))
    for path in ("/private/x", "/y.secret", "/a/../private/x"):
        with pytest.raises(Refused, match=r"robots\.txt asks programs to stay away.*web\.robots = false"):
            await web.page(site.url(path))
    assert site.hits["/robots.txt"] == 1
    assert not site.hits["/private/x"] + site.hits["/y.secret"]


async def test_robots_can_speak_to_this_program_alone(web, site: Site) -> None:
    site.add(
        "/robots.txt", "User-agent: retinue\nDisallow: /\n\nUser-agent: *\nAllow: /\n", kind="text/plain"
    )
    with pytest.raises(Refused):
        await web.page(site.add("/a", PAGE))


async def test_robots_can_be_switched_off(make_web, site: Site) -> None:
    site.add("/robots.txt", "User-agent: *\nDisallow: /\n", kind="text/plain")
    assert (await make_web(robots=False).page(site.add("/a", PAGE))).answer.status == 200
    assert site.hits["/robots.txt"] == 0


async def test_robots_hold_for_where_a_redirect_leads(web, site: Site) -> None:
    site.add("/robots.txt", "User-agent: *\nDisallow: /no\n", kind="text/plain")
    site.redirect("/yes", "/no")
    site.add("/no", PAGE)
    with pytest.raises(Refused):
        await web.page(site.url("/yes"))
    assert site.hits["/no"] == 0


@pytest.mark.parametrize(
    ("status", "fetched"), [("404 x", True), ("403 x", True), ("500 x", False), ("503 x", False)]
)
async def test_a_missing_robots_file_allows_and_a_failing_one_forbids(
    web, site, status: str, fetched: bool
) -> None:
    site.add("/robots.txt", "User-agent: *\nDisallow: /", status=status, kind="text/plain")
    url = site.add("/a", PAGE)
    if fetched:
        assert (await web.page(url)).answer.status == 200
    else:
        assert "/robots.txt answered 50" in await failure(web, url)


async def test_a_huge_robots_file_does_not_hold_up_the_loop(web, site: Site) -> None:
    rules = "User-agent: *\n" + "".join(f"Disallow: /*a*b*{number}*c$\n" for number in range(15_000))
    site.add("/robots.txt", rules, kind="text/plain")
    with longest_turn() as most:
        await web.page(site.add("/" + "ab" * 500, PAGE))
    assert most() < 5_000


# ---- the loop stays free


async def test_a_five_megabyte_page_does_not_hold_up_the_loop(web, site: Site) -> None:
    row = "<h2>Part</h2><p>Some text &amp; <a href='/x'>more</a> of it.</p><pre><code>x = 1</code></pre>\n"
    body = f"<html><body><h1>Big</h1>{row * (4_900_000 // len(row))}</body></html>"
    url = site.add("/big", body)
    await web.page(site.add("/warm", PAGE))
    with longest_turn() as most:  # the bench measures its milliseconds
        await web.page(url)
    assert most() < 5_000


# ---- the cache


async def test_a_page_is_fetched_once_while_it_is_fresh(make_web, site: Site) -> None:
    kept = Kept()
    web, other = make_web(kept), make_web(kept)
    url = site.add("/a", PAGE)
    first = await web.page(url)
    again = await other.page(url)
    assert site.hits["/a"] == 1
    assert again.source() == first.source()
    kept.now += 3601
    await web.page(url)
    assert site.hits["/a"] == 2


async def test_a_stale_page_is_revalidated(make_web, site: Site) -> None:
    kept = Kept()
    web = make_web(kept)

    @site.serve("/a")
    async def tagged(asked: Asked) -> None:
        if asked.headers.get("if-none-match") == '"v1"':
            await asked.reply(status="304 Not Modified", ETag='"v1"')
        else:
            await asked.reply(PAGE, ETag='"v1"')

    site.redirect("/old", "/a")
    first = await web.page(site.url("/old"))
    kept.now += 4000
    second = await web.page(site.url("/old"))
    assert site.asked[-1].headers["if-none-match"] == '"v1"'
    assert second.page.text == first.page.text
    assert second.source().aliases == (site.url("/old"),)
    assert second.answer.fetched_at == kept.now
    kept.now += 10
    hits = sum(site.hits.values())
    await web.page(site.url("/old"))
    assert sum(site.hits.values()) == hits


async def test_a_changed_page_replaces_the_stale_one(make_web, site: Site) -> None:
    kept = Kept()
    web = make_web(kept)
    site.add("/a", PAGE, Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT")
    await web.page(site.url("/a"))
    kept.now += 4000
    site.add("/a", PAGE.replace("Some", "Other"))
    assert "Other words." in (await web.page(site.url("/a"))).page.text
    assert site.asked[-1].headers["if-modified-since"] == "Mon, 01 Jan 2024 00:00:00 GMT"


async def test_tenants_do_not_share_pages(make_web, site: Site) -> None:
    kept = Kept()
    url = site.add("/a", PAGE)
    await make_web(kept, scope="tenant-1").page(url)
    await make_web(kept, scope="tenant-2").page(url)
    assert site.hits["/a"] == 2


async def test_what_must_not_be_stored_is_not(make_web, site: Site) -> None:
    kept = Kept()
    web = make_web(kept)
    url = site.add("/a", PAGE, Cache_Control="private, no-store")
    await web.page(url)
    await web.page(url)
    assert site.hits["/a"] == 2
    assert not kept.values


async def test_errors_are_not_cached(make_web, site: Site) -> None:
    web = make_web(Kept())
    site.add("/a", "", status="500 x")
    await failure(web, site.url("/a"))
    site.add("/a", PAGE)
    assert (await web.page(site.url("/a"))).answer.status == 200


async def test_a_ttl_of_zero_switches_the_cache_off(make_web, site: Site) -> None:
    kept = Kept()
    web = make_web(kept, cache_ttl=0)
    url = site.add("/a", PAGE)
    await web.page(url)
    await web.page(url)
    assert (site.hits["/a"], kept.values) == (2, {})


async def test_equal_requests_at_the_same_time_are_one(web, site: Site) -> None:
    gate = asyncio.Event()

    @site.serve("/slow")
    async def slow(asked: Asked) -> None:
        await gate.wait()
        await asked.reply(PAGE)

    tasks = [asyncio.create_task(web.page(site.url("/slow"))) for _ in range(8)]
    while not site.hits["/slow"]:
        await asyncio.sleep(0)
    gate.set()
    pages = await asyncio.gather(*tasks)
    assert site.hits["/slow"] == 1
    assert len({page.answer.sha256 for page in pages}) == 1


async def test_one_that_gives_up_does_not_take_the_others_along(web, site: Site) -> None:
    gate = asyncio.Event()

    @site.serve("/slow")
    async def slow(asked: Asked) -> None:
        await gate.wait()
        await asked.reply(PAGE)

    first, second = (asyncio.create_task(web.page(site.url("/slow"))) for _ in range(2))
    while not site.hits["/slow"]:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.set()
    assert (await second).answer.status == 200


async def test_nobody_waiting_ends_the_request(web, site: Site) -> None:
    closed = asyncio.Event()

    @site.serve("/slow")
    async def slow(asked: Asked) -> None:
        await asked.reader.read()
        closed.set()

    task = asyncio.create_task(web.page(site.url("/slow")))
    while not site.hits["/slow"]:
        await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(60):
        await closed.wait()


async def test_one_who_comes_when_the_last_gives_up_starts_anew(web, site: Site) -> None:
    @site.serve("/slow")
    async def slow(asked: Asked) -> None:
        if site.hits["/slow"] == 1:
            await asked.reader.read()  # until the one that gave up hangs up
        else:
            await asked.reply(PAGE)

    first = asyncio.create_task(web.page(site.url("/slow")))
    while not site.hits["/slow"]:
        await asyncio.sleep(0)
    first.cancel()
    # The second starts right after the first gave up, while the fetch they would share is taken down.
    second = asyncio.create_task(web.page(site.url("/slow")))
    async with asyncio.timeout(60):
        assert (await second).answer.status == 200
    assert site.hits["/slow"] == 2


async def test_what_one_project_may_reach_is_not_kept_for_another_that_may_not(make_web, site: Site) -> None:
    """The same store, and the same name that leads to a private address: only one of them is allowed it."""
    kept, name = Kept(), f"wiki.corp:{site.port}"

    async def here(host: str) -> list[str]:
        return [site.host]

    def project(*allowed: str) -> Web:
        guard = Guard(allowed, ports=(80, 443, site.port))
        return make_web(kept, allow_hosts=allowed, guard=guard, resolve=here, robots=False)

    url = site.add("/secret", "<p>the plan</p>").replace(site.authority, name)
    for _ in range(2):
        assert b"the plan" in (await project(name).get(url)).body
    assert site.hits["/secret"] == 1, "kept for the one that may"
    with pytest.raises(Refused, match="loopback"):
        await project().get(url)
