"""Nothing but the public internet is ever dialled, however an address is written or reached."""

from __future__ import annotations

import ipaddress
import socket

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from local_web import Site

from retinue.errors import ConfigError, Refused, ToolError
from retinue.settings import WebSettings
from retinue.web.fetch import Web
from retinue.web.guard import Guard, closed, dialling, parse_rule
from retinue.web.urls import BadUrl, key, take_apart

CLOSED = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254", "169.254.1.1",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
    "255.255.255.255", "168.63.129.16", "100.100.100.200", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::",
    "2001:db8::1", "2001:10::1", "2002:7f00:1::", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00::1",
    "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "2a00:1450::5efe:10.0.0.1", "2a00:1450::200:5efe:127.0.0.1",
]  # fmt: skip
OPEN = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450:4001::1",
        "::ffff:8.8.8.8", "64:ff9b::808:808"]  # fmt: skip


@pytest.mark.parametrize("address", CLOSED)
def test_an_address_that_is_not_public_is_closed(address: str) -> None:
    assert closed(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", OPEN)
def test_a_public_address_is_open(address: str) -> None:
    assert closed(ipaddress.ip_address(address)) is None


@given(st.ip_addresses(v=4))
def test_only_global_ipv4_addresses_are_open(address: ipaddress.IPv4Address) -> None:
    if closed(address) is None:
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=6))
def test_only_global_ipv6_addresses_are_open(address: ipaddress.IPv6Address) -> None:
    if closed(address) is None and closed(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)) is not None:
        assert address.is_global
        assert not address.is_multicast


# Every way that is known to write, hide or reach an address of this machine. `{p}` is the canary's port.
HOSTILE = [
    "http://127.0.0.1:{p}/",
    "http://127.0.0.2:{p}/",
    "http://127.1:{p}/",
    "http://127.0.1:{p}/",
    "http://2130706433:{p}/",
    "http://017700000001:{p}/",
    "http://0x7f000001:{p}/",
    "http://0x7f.0.0.1:{p}/",
    "http://0177.0.0.1:{p}/",
    "http://0x7f.1:{p}/",
    "http://127.0.0.1.:{p}/",
    "http://127.000.000.001:{p}/",
    "http://0:{p}/",
    "http://0.0.0.0:{p}/",
    "http://[::1]:{p}/",
    "http://[::]:{p}/",
    "http://[0:0:0:0:0:0:0:1]:{p}/",
    "http://[::ffff:127.0.0.1]:{p}/",
    "http://[::ffff:7f00:1]:{p}/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:{p}/",
    "http://[::127.0.0.1]:{p}/",
    "http://[64:ff9b::127.0.0.1]:{p}/",
    "http://[2002:7f00:0001::]:{p}/",
    "http://[2001:0:7f00:1::1]:{p}/",
    "http://[fe80::1%25lo]:{p}/",
    "http://[::1%lo]:{p}/",
    "http://localhost:{p}/",
    "http://LOCALHOST:{p}/",
    "http://localhost.:{p}/",
    "http://sub.localhost:{p}/",
    "http://printer.local:{p}/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://user:secret@127.0.0.1:{p}/",
    "http://example.com@127.0.0.1:{p}/",
    "http://127.0.0.1:{p}@example.com/",
    "http://example.com\\@127.0.0.1:{p}/",
    "http://127.0.0.1\\.example.com:{p}/",
    "http://127%2e0%2e0%2e1:{p}/",
    "http://%31%32%37.0.0.1:{p}/",
    "http://127。0。0。1:{p}/",
    "http://１２７.０.０.１:{p}/",
    "http://①②⑦.⓪.⓪.①:{p}/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{p}/",
    "http://127.0.0.1\t:{p}/",
    "http://127.0.0.1\r\nHost: x\r\n:{p}/",
    "http://\u202e127.0.0.1:{p}/",
    "http://127.0.0.1:{p}\u2028/",
    "http:\\\\127.0.0.1:{p}\\",
    "http:/127.0.0.1:{p}/",
    "//127.0.0.1:{p}/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{p}/_x",
    "ftp://127.0.0.1:{p}/",
    "data:text/html,<p>hi",
    "javascript:alert(1)",
    "unix:///run/docker.sock",
    "jar:http://127.0.0.1:{p}/!/",
    "http://10.0.0.1:{p}/",
    "http://192.168.0.1:{p}/",
    "http://172.16.5.5:{p}/",
    "http://100.64.1.1:{p}/",
    "http://224.0.0.1:{p}/",
    "http://255.255.255.255:{p}/",
    "http://127.0.0.1.nip.test:{p}/",
    "http://rebound.test:{p}/",
    "http://both.test:{p}/",
    "http://six.test:{p}/",
    "http://mapped.test:{p}/",
    "http://zone.test:{p}/",
    "http://garbage.test:{p}/",
    "http://private.test:{p}/",
]


class Names:
    """A name service of one's own, which says something else the second time for some names."""

    def __init__(self, table: dict[str, list[list[str]]]) -> None:
        self.table = table
        self.asked: list[str] = []

    async def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        answers = self.table.get(host, [[]])
        return answers[min(self.asked.count(host) - 1, len(answers) - 1)]


NAMES = {
    "127.0.0.1.nip.test": [["127.0.0.1"]],
    "rebound.test": [["127.0.0.1"]],
    "both.test": [["10.0.0.1", "127.0.0.1", "::1"]],
    "six.test": [["::1"]],
    "mapped.test": [["::ffff:127.0.0.1"]],
    "zone.test": [["fe80::1%lo"]],
    "garbage.test": [["not-an-address"]],
    "private.test": [["192.168.0.1"]],
}


@pytest_asyncio.fixture(loop_scope="module")
async def canary():
    """What must never be reached: listens on every address of this machine, IPv4 and IPv6."""
    four = await Site(host="0.0.0.0").start()
    six = Site(host="::1")
    try:
        await six.start(four.port)
    except OSError:
        six = None  # no IPv6 here
    four.add("/", "reached")
    four.pages["*"] = four.pages["/"]
    yield four, six
    await four.stop()
    if six is not None:
        await six.stop()


def connections(canary) -> int:
    return sum(site.connections for site in canary if site is not None)


@pytest.mark.parametrize("url", HOSTILE)
async def test_a_hostile_url_reaches_nothing_and_is_told_why(url: str, canary, pool) -> None:
    port = canary[0].port
    guard = Guard(ports=(80, 443, port))
    async with Web(WebSettings(timeout=60), guard=guard, resolve=Names(NAMES), pool=pool) as web:
        with pytest.raises(ToolError) as caught:
            await web.get(url.format(p=port))
    assert connections(canary) == 0
    text = str(caught.value)
    assert text.startswith(("refused:", "bad URL:"))
    assert len(text) > 30


@pytest.mark.parametrize("url", HOSTILE)
async def test_a_redirect_to_a_hostile_url_is_not_followed(url: str, canary, make_site, pool) -> None:
    port = canary[0].port
    front = await make_site(host="127.0.0.3")
    front.redirect("/go", url.format(p=port).replace("\r", "").replace("\n", ""))
    guard = Guard((f"127.0.0.3:{front.port}",), ports=(80, 443, port))
    async with Web(WebSettings(timeout=60), guard=guard, resolve=Names(NAMES), pool=pool) as web:
        with pytest.raises(ToolError) as caught:
            await web.get(front.url("/go"))
    assert connections(canary) == 0
    # The names are refused where they are dialled; a location without "//" is a path on the same site.
    if ".test" not in url and "//" in url:
        assert f"{front.url('/go')} redirects to" in str(caught.value)


async def test_a_name_that_changes_its_address_is_checked_each_time(canary, make_site, pool) -> None:
    good = await make_site(host="127.0.0.3")
    good.add("/", "<p>good</p>", Connection="close")
    good.add("/robots.txt", "", Connection="close")
    names = Names({"twice.test": [["127.0.0.3"], ["127.0.0.3"], ["127.0.0.1"]]})
    guard = Guard((f"127.0.0.3/32:{good.port}",), ports=(80, 443, good.port))
    async with Web(WebSettings(timeout=60), guard=guard, resolve=names, pool=pool) as web:
        url = f"http://twice.test:{good.port}/"
        assert (await web.get(url)).body == b"<p>good</p>"
        with pytest.raises(Refused, match=r"resolves to 127\.0\.0\.1, a loopback address"):
            await web.get(url)
    assert names.asked.count("twice.test") == 3


async def test_of_several_addresses_only_those_allowed_are_dialled(canary, make_site, pool) -> None:
    port = canary[0].port
    names = Names({"mixed.test": [["127.0.0.1", "127.0.0.9"]]})
    guard = Guard((f"127.0.0.9/32:{port}",), ports=(80, 443, port))
    async with Web(WebSettings(timeout=60, robots=False), guard=guard, resolve=names, pool=pool) as web:
        answer = await web.get(f"http://mixed.test:{port}/")
    # 0.0.0.0 listens on 127.0.0.9 too: one connection, to the address that is allowed.
    assert answer.body == b"reached"
    assert connections(canary) == 1


async def test_a_socket_without_a_check_is_never_made() -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))
    with pytest.raises(OSError, match="no check"):
        Guard().socket(info)
    with (
        dialling(take_apart("http://public.test/"), proxied=False) as dial,
        pytest.raises(OSError, match="loopback"),
    ):
        Guard().socket(info)
    assert dial.refused


async def test_the_robots_file_is_fetched_under_the_same_guard(canary, make_site, pool) -> None:
    port = canary[0].port
    front = await make_site(host="127.0.0.3")
    front.redirect("/robots.txt", f"http://127.0.0.1:{port}/robots.txt")
    front.add("/", "<p>hello</p>")
    guard = Guard((f"127.0.0.3:{front.port}",), ports=(80, 443, port))
    async with Web(WebSettings(timeout=60), guard=guard, pool=pool) as web:
        assert (await web.get(front.url("/"))).status == 200
    assert connections(canary) == 0


async def test_unusual_ports_are_refused_unless_listed() -> None:
    with pytest.raises(
        Refused, match=r"port 8080 is not 80 or 443.*'93\.184\.216\.34:8080' to web\.allow_hosts"
    ):
        Guard().check("http://93.184.216.34:8080/")
    assert Guard(("93.184.216.34:8080",)).check("http://93.184.216.34:8080/").port == 8080


@pytest.mark.parametrize(
    ("rule", "url", "allowed"),
    [
        ("wiki.corp", "http://wiki.corp/", True),
        ("wiki.corp", "http://wiki.corp:8080/", False),
        ("wiki.corp:8080", "http://wiki.corp:8080/", True),
        ("wiki.corp:8080", "http://other.corp:8080/", False),
        ("*.corp:8080", "http://a.b.corp:8080/", True),
        ("*.corp:8080", "http://corp:8080/", False),
        ("10.1.0.0/16", "http://10.1.2.3/", True),
        ("10.1.0.0/16", "http://10.2.2.3/", False),
        ("10.1.0.0/16:8080", "http://10.1.2.3:8080/", True),
        ("10.1.0.0/16:8080", "http://10.1.2.3/", False),
        ("10.1.2.3", "http://10.1.2.3/", True),
        ("[fd00::/8]:8080", "http://[fd00::5]:8080/", True),
        ("fd00::/8", "http://[fd00::5]/", True),
        ("localhost:9000", "http://localhost:9000/", True),
        ("bücher.corp", "http://xn--bcher-kva.corp/", True),
    ],
)
def test_the_allow_list_means_what_it_says(rule: str, url: str, allowed: bool) -> None:
    if allowed:
        target = Guard((rule,)).check(url)
        address = target.address or ipaddress.ip_address("10.9.9.9")
        assert Guard((rule,)).why_not(target, address) is None
    else:
        with pytest.raises(Refused):
            Guard((rule,)).check(url)


@pytest.mark.parametrize("rule", ["", "http://x", "a b", "10.0.0.0/99", "x:99999999", "*.*"])
def test_a_rule_that_is_none_is_a_mistake_in_the_settings(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"web\.allow_hosts"):
        parse_rule(rule)


async def test_behind_a_proxy_private_names_are_still_refused(make_site, pool) -> None:
    proxy = await make_site()
    proxy.add("*", "through the proxy")
    settings = WebSettings(timeout=60, proxy=proxy.url(""), robots=False)
    async with Web(settings, pool=pool) as web:
        for url in ("http://127.0.0.1/", "http://169.254.169.254/", "http://localhost/", "http://[::1]/"):
            with pytest.raises(Refused):
                await web.get(url)
        assert proxy.connections == 0
        answer = await web.get("http://only-the-proxy-knows.invalid/page")
    assert answer.body == b"through the proxy"
    assert proxy.asked[0].path == "http://only-the-proxy-knows.invalid/page"


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://Example.ORG", "https://example.org/"),
        ("http://example.org:80/a/../b/./c?q=1#top", "http://example.org/b/c?q=1"),
        ("https://example.org./", "https://example.org/"),
        ("https://münchen.example/ä b", "https://xn--mnchen-3ya.example/%C3%A4%20b"),
        ("https://example.org/100%", "https://example.org/100%25"),
        ("https://example.org/a%2Fb?x=%41", "https://example.org/a%2Fb?x=%41"),
        (" <https://example.org/x> ", "https://example.org/x"),
        ("https://[2606:4700:0:0::1]/", "https://[2606:4700::1]/"),
    ],
)
def test_a_good_url_is_put_in_one_form(url: str, same: str) -> None:
    assert take_apart(url).url == same


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@given(ANY_TEXT, st.text(max_size=20))
def test_no_text_makes_the_parser_fail(text: str, host: str) -> None:
    for url in (text, "http://" + text, f"https://{host}/{text}", f"http://{host}:80"):
        key(url)
        try:
            target = take_apart(url)
        except BadUrl:
            continue
        assert take_apart(target.url) == target


def test_two_spellings_of_a_page_have_one_key() -> None:
    assert key("HTTP://www.Example.org:80/a/?utm_source=x&b=%7e#c") == key("https://www.example.org/a?b=~")
    assert key("https://example.org/a") != key("https://example.org/b")
    assert key("no url at all") == "no url at all"
