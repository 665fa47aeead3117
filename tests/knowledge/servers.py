"""Real server software on loopback: MediaWiki, Oxigraph, nginx.

Each is found, or fetched once into the cache folder; where that cannot be done (no Debian, no right to
install, no network) the test is skipped and says why. Every server is stopped with its process group.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "mediawiki.py"
TURTLE = """
@prefix wd: <http://www.wikidata.org/entity/> .
@prefix wdt: <http://www.wikidata.org/prop/direct/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix wikibase: <http://wikiba.se/ontology#> .
@prefix schema: <http://schema.org/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
<https://en.wikipedia.org/wiki/Ada_Lovelace> schema:about wd:Q7259 .
wd:Q7259 rdfs:label "Ada Lovelace"@en, "Ada Lovelace"@de ;
  wdt:P569 "1815-12-10T00:00:00Z"^^xsd:dateTime ; wdt:P106 wd:Q170790 .
wd:Q170790 rdfs:label "mathematician"@en, "Mathematiker"@de .
wd:P569 wikibase:directClaim wdt:P569 ; rdfs:label "date of birth"@en .
wd:P106 wikibase:directClaim wdt:P106 ; rdfs:label "occupation"@en .
"""


def script() -> ModuleType:
    """The script that sets up MediaWiki, as a module."""
    spec = importlib.util.spec_from_file_location("mediawiki_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def needs_debian() -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip("needs Debian's package tools to fetch the server")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def until_answers(port: int, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} before it answered")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.02)
    raise RuntimeError(f"no answer on port {port} within {seconds} s")


@contextlib.contextmanager
def mediawiki(own: Path) -> Iterator[str]:
    """A wiki with a few pages, on a database of its own."""
    setup = script()
    needs_debian()
    if not shutil.which("php") and os.geteuid() != 0:
        pytest.skip("needs PHP, and root to install it")
    folder = setup.setup()
    shutil.copytree(folder / "data", own / "data")
    port = free_port()
    process = setup.serve(folder, port, own / "data")
    try:
        until_answers(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        setup.stop(process)


@contextlib.contextmanager
def oxigraph(own: Path) -> Iterator[str]:
    """A SPARQL server with a few triples shaped as Wikidata's."""
    beside = Path(sys.executable).with_name("oxigraph")
    program = str(beside) if beside.exists() else shutil.which("oxigraph")
    if program is None:
        pytest.skip("needs oxigraph: pip install oxigraph")
    (own / "facts.ttl").write_text(TURTLE, "utf-8")
    store = own / "store"
    subprocess.run(
        [program, "load", "--location", str(store), "--file", str(own / "facts.ttl")],
        check=True,
        capture_output=True,
    )
    port = free_port()
    process = subprocess.Popen(
        [program, "serve", "--location", str(store), "--bind", f"127.0.0.1:{port}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until_answers(port, process)
        yield f"http://127.0.0.1:{port}/query"
    finally:
        script().stop(process)


def nginx_program() -> str:
    found = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if found:
        return found
    needs_debian()
    setup = script()
    folder = setup.cache_folder() / "nginx"
    program = folder / "usr" / "sbin" / "nginx"
    with setup.locked("nginx"):
        if not program.exists():
            setup.unpack(("nginx",), folder)
            libraries = subprocess.run(
                ["ldd", str(program)], capture_output=True, text=True, check=True
            ).stdout
            if "not found" in libraries:
                setup.apt(
                    "install", "--no-install-recommends", "libpcre2-8-0", "libssl3", "zlib1g", "libcrypt1"
                )
    return str(program)


@contextlib.contextmanager
def nginx(own: Path, locations: str, zones: str = "") -> Iterator[str]:
    """nginx with these locations. `{own}` in them is its folder; its log is `access.log` there."""
    port = free_port()
    temporary = "".join(
        f"{kind}_temp_path {own}/tmp_{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (own / "nginx.conf").write_text(
        f"""
daemon off; worker_processes 1; pid {own}/nginx.pid; error_log {own}/error.log;
{"user root;" if os.geteuid() == 0 else ""}
events {{ worker_connections 256; }}
http {{
  {temporary} access_log {own}/access.log; {zones}
  server {{ listen 127.0.0.1:{port}; {locations.replace("{own}", str(own))} }}
}}"""
    )
    process = subprocess.Popen(
        [nginx_program(), "-p", str(own), "-c", str(own / "nginx.conf")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until_answers(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        script().stop(process)


if __name__ == "__main__":  # before the tests, which have no network
    print(nginx_program())
