"""The HTTP client byte by byte: what servers and proxies of all kinds send, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from retinue.errors import ConfigError
from retinue.models import http
from retinue.models.http import Client, HttpRefused
from retinue.models.line import LONGEST_HEAD, MOST_UNREAD, BadAnswer

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Seen:
    """What reached a server: one entry for each connection, the requests on it."""

    def __init__(self) -> None:
        self.lines: list[list[bytes]] = []
        self.url = ""
        self.left = 0


async def request_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return head + await reader.readexactly(length)


@asynccontextmanager
async def answering(*answers: bytes, close: bool = False) -> AsyncIterator[Seen]:
    """A server that sends these bytes, one after the other, however they look."""
    seen = Seen()
    rest = list(answers)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: list[bytes] = []
        seen.lines.append(asked)
        try:
            while True:
                asked.append(await request_of(reader))
                answer = rest.pop(0) if rest else OK
                for piece in answer.split(b"|"):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            seen.left += 1
            writer.close()

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # the test is over
            await talk(reader, writer)

    server = await asyncio.start_server(quietly, "127.0.0.1", 0)
    seen.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield seen
    finally:
        server.close()


async def post(client: Client, url: str, body: bytes = b"{}", timeout: float = 20) -> tuple[int, bytes]:
    answer = await client.post(url, headers={"X-Key": "k"}, body=body, timeout=timeout)
    try:
        return answer.status, await answer.read()
    finally:
        answer.release()


async def test_a_connection_is_used_again_and_a_request_is_sent_as_it_should_be(client: Client) -> None:
    async with answering() as seen:
        for _ in range(3):
            assert await post(client, f"{seen.url}/v1/chat?x=1", b"hello") == (200, b"ok")
    assert len(seen.lines) == 1
    host = seen.url.removeprefix("http://")
    assert (
        seen.lines[0][0]
        == (
            f"POST /v1/chat?x=1 HTTP/1.1\r\nHost: {host}\r\nUser-Agent: retinue\r\nAccept-Encoding: identity\r\n"
            "X-Key: k\r\nContent-Length: 5\r\n\r\nhello"
        ).encode()
    )


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK, id="length"),
        pytest.param(OK.replace(b"\r\n", b"\r\n|").replace(b"o", b"o|"), id="length in pieces"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n|o\r|\n1;x=y\r\nk\r\n0\r|\n\r\n",
            id="chunked in pieces",
        ),
        pytest.param(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n|" + OK, id="after a 100"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, id="after a 103"),
    ],
)
async def test_an_answer_is_read_however_it_is_cut(client: Client, answer: bytes) -> None:
    async with answering(answer, answer) as seen:
        assert await post(client, seen.url) == (200, b"ok")
        assert await post(client, seen.url) == (200, b"ok")
    assert len(seen.lines) == 1


async def test_a_body_without_a_length_ends_with_its_connection(client: Client) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\nall of it", close=True) as seen:
        assert await post(client, seen.url) == (200, b"all of it")
        assert await post(client, seen.url) == (200, b"ok")
    assert len(seen.lines) == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * LONGEST_HEAD + b"\r\n\r\n", "too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok", "compressed"),
    ],
)
async def test_what_is_no_proper_answer_is_a_clear_error(client: Client, answer: bytes, words: str) -> None:
    async with answering(answer) as seen:
        with pytest.raises(BadAnswer, match=words):
            await post(client, seen.url)


async def test_an_answer_that_breaks_off_is_an_error_and_not_an_end(client: Client) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok", close=True) as seen:
        with pytest.raises(ConnectionError):
            await post(client, seen.url)


async def test_a_connection_that_was_closed_while_idle_costs_nothing(client: Client) -> None:
    """The server closes after each answer without saying so; the second request finds that out."""
    async with answering(close=True) as seen:
        assert await post(client, seen.url) == (200, b"ok")
        assert await post(client, seen.url) == (200, b"ok")
    assert [len(asked) for asked in seen.lines] == [1, 1]


async def test_an_answer_that_comes_unasked_spoils_the_connection(client: Client) -> None:
    async with answering(OK + OK) as seen:
        assert await post(client, seen.url) == (200, b"ok")
        assert await post(client, seen.url) == (200, b"ok")
    assert len(seen.lines) == 2


async def test_silence_ends_in_a_timeout_and_hangs_up() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok"
    async with answering(half) as seen, Client(stall=0.2) as client:
        with pytest.raises(TimeoutError, match="no answer"):
            await post(client, seen.url)
        async with asyncio.timeout(60):
            while not seen.left:
                await asyncio.sleep(0.01)


async def test_a_reader_that_falls_behind_slows_the_sender_down(client: Client) -> None:
    sent = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (50 * MOST_UNREAD))
        for _ in range(50):
            writer.write(bytes(MOST_UNREAD))
            await writer.drain()
            sent += 1

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        answer = await client.post(url, headers={}, body=b"{}", timeout=30)
        before = -1
        while before != sent:  # until the sender stands still
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 25
        size = 0
        while data := await answer.chunk():
            size += len(data)
        assert size == 50 * MOST_UNREAD
        answer.release()


async def test_idle_connections_are_closed_after_a_while(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "IDLE_SECONDS", 0.05)
    async with answering() as seen:
        await post(client, seen.url)
        async with asyncio.timeout(60):
            while not seen.left:
                await asyncio.sleep(0.01)


async def test_addresses_that_lead_nowhere_are_said_so(client: Client) -> None:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(
        ConnectionRefusedError, match=rf"^nothing answers at 127\.0\.0\.1:{port}: is a server"
    ):
        await post(client, f"http://127.0.0.1:{port}/")
    with pytest.raises(ConnectionError, match=r"^there is no host models\.invalid"):
        await post(client, "http://models.invalid/v1")


async def test_a_server_that_never_accepts_is_given_up(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TLS server that never says a word: the connection is there, the handshake never ends."""
    monkeypatch.setattr(http, "CONNECT_SECONDS", 0.2)
    server = await asyncio.start_server(lambda r, w: asyncio.sleep(30), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ConnectionError, match=rf"no connection to 127\.0\.0\.1:{port} within 0\.2 s"):
            await post(client, f"https://127.0.0.1:{port}/")


async def test_a_small_answer_that_is_no_200_is_refused_with_its_status(client: Client) -> None:
    async with answering(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n") as seen:
        with pytest.raises(HttpRefused) as refused:
            await client.get(f"{seen.url}/models", headers={}, timeout=20)
    assert refused.value.status == 401


async def test_a_key_with_a_line_break_is_never_sent(client: Client) -> None:
    async with answering() as seen:
        with pytest.raises(ConfigError, match="line break"):
            await client.post(seen.url, headers={"Key": "k\r\nHost: evil"}, body=b"", timeout=20)
    assert seen.lines == []


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    both = tmp_path / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", str(both), "-out", str(tmp_path / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    both.write_bytes(both.read_bytes() + (tmp_path / "cert.pem").read_bytes())
    return both


@asynccontextmanager
async def proxy(refuses: bytes = b"") -> AsyncIterator[tuple[str, list[bytes]]]:
    """A proxy that opens tunnels, or says why not."""
    asked: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await request_of(reader))
        if refuses:
            writer.write(refuses)
            writer.close()
            return
        port = int(asked[-1].split(b" ")[1].split(b":")[1])
        there, away = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: a proxy\r\n\r\n")
        await asyncio.gather(pump(reader, away), pump(there, writer), return_exceptions=True)

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def test_https_goes_through_a_tunnel_and_the_proxy_sees_nothing_of_it(
    authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "is_loopback", lambda host: False)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority)
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            seen.append(await request_of(reader))
            writer.write(OK)
        writer.close()

    async with (
        proxy() as (address, asked),
        await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context) as s,
    ):
        port = s.sockets[0].getsockname()[1]
        environ = {"HTTPS_PROXY": f"http://me:p%40ss@{address}", "SSL_CERT_FILE": str(authority)}
        async with Client(environ=environ) as client:
            for _ in range(2):
                assert await post(client, f"https://localhost:{port}/v1") == (200, b"ok")
    assert len(seen) == 2
    assert asked == [
        f"CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n"
        "Proxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n".encode()
    ]


async def test_a_proxy_that_refuses_is_named_with_its_reason() -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with proxy(refusal) as (address, _), Client(environ={"HTTPS_PROXY": address}) as client:
        with pytest.raises(ConnectionError, match=r"the proxy answers 'HTTP/1\.1 407"):
            await post(client, "https://models.invalid/v1")


async def test_a_proxy_of_another_kind_is_a_clear_error() -> None:
    async with Client(environ={"ALL_PROXY": "socks5://127.0.0.1:1"}) as client:
        with pytest.raises(ConfigError, match="only http and https"):
            await post(client, "https://models.invalid/v1")


@contextlib.contextmanager
def few_handles(spare: int = 0) -> Iterator[Callable[[], None]]:
    """This process may open nothing more. Yields what gives it its handles back."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    give_back = partial(resource.setrlimit, resource.RLIMIT_NOFILE, before)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, before[1]))
    try:
        yield give_back
    finally:
        give_back()


async def test_a_connection_waits_for_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    real, tries = http._keepalive_socket, list[int]()
    async with answering() as seen, Client(environ={}) as client:
        await client.get(seen.url, headers={}, timeout=20)  # the look-up is known
        for line in [*client._open]:
            line.abort()
        await asyncio.sleep(0)
        with few_handles() as give_back:

            def counted(address: Any) -> socket.socket:
                tries.append(len(tries))
                if len(tries) == 3:
                    give_back()
                return real(address)

            monkeypatch.setattr(http, "_keepalive_socket", counted)
            assert await post(client, seen.url) == (200, b"ok")
    assert tries == [0, 1, 2]


async def test_a_connection_waits_for_a_handle_no_longer_than_its_call_may_take() -> None:
    async with answering() as seen, Client(environ={}) as client:
        await client.get(seen.url, headers={}, timeout=20)
        for line in [*client._open]:
            line.abort()
        await asyncio.sleep(0)
        with few_handles(), pytest.raises(ConnectionError, match="Too many open files"):
            await post(client, seen.url, timeout=0.2)


async def test_connections_leave_some_handles_to_the_rest_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server whose runs wait for their models is still to be reached, and writes its log."""
    monkeypatch.setattr(http, "LEFT_OPEN", 8)
    real, had_to_wait = http._keepalive_socket, asyncio.Event()

    def noted(address: Any) -> socket.socket:
        try:
            return real(address)
        except OSError:
            had_to_wait.set()
            raise

    monkeypatch.setattr(http, "_keepalive_socket", noted)
    async with answering() as known, Client(environ={}) as client:
        await client.get(known.url, headers={}, timeout=20)  # all that it needs is loaded
        with socket.create_server(("127.0.0.1", 0), backlog=64) as silent, few_handles(spare=16):
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            waiting = [asyncio.create_task(post(client, url)) for _ in range(20)]
            async with asyncio.timeout(60):
                await had_to_wait.wait()
            others = [os.dup(0) for _ in range(4)]  # fails if connections have taken all there is
            for each in others:
                os.close(each)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
