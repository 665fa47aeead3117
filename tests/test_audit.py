"""The audit of the lock, against indexes on this machine: real HTTP, one server for each kind of answer."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
JSON = "application/vnd.pypi.simple.v1+json"


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def file(name: str, **fields: Any) -> dict[str, Any]:
    return {"filename": name, "url": name, "hashes": {"sha256": digest(name)}, **fields}


def page(*files: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"meta": {"api-version": "1.4"}, "files": list(files), **fields}


def as_html(page: dict[str, Any]) -> str:
    """The same page in the older form."""
    status = page.get("project-status", {})
    head = f'<meta name="pypi:project-status" content="{status["status"]}">' if status else ""
    links: list[str] = []
    for one in page["files"]:
        yanked = one.get("yanked", False)
        mark = "" if yanked is False else f' data-yanked="{html.escape(str(yanked))}"'
        links.append(
            f'<a href="{one["url"]}#sha256={one["hashes"]["sha256"]}"{mark}>{one["filename"]}</a><br/>'
        )
    return f"<html><head>{head}</head><body>{''.join(links)}</body></html>"


@dataclass
class PlayedIndex:
    """A package index. What it has no page for is a 404; what is `held` is never answered."""

    pages: dict[str, Any] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    status: int = 200
    html: bool = False
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""
    ended: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.seen.append((request.path, request.headers.get("Authorization")))
        if request.path in self.held:
            self.ended.wait()
            return
        found = self.pages.get(request.path)
        status = 404 if found is None and self.status == 200 else self.status
        kind, text = (JSON, json.dumps(found))
        if self.html and isinstance(found, dict) and "files" in found:
            kind, text = "text/html", as_html(found)
        elif isinstance(found, str):
            kind, text = "text/html", found
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(text.encode())))
        request.end_headers()
        request.wfile.write(text.encode())


@pytest.fixture
def index() -> Iterator[PlayedIndex]:
    played = PlayedIndex()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            played.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    played.address = f"127.0.0.1:{server.server_address[1]}"
    yield played
    played.ended.set()
    server.shutdown()
    thread.join()
    server.server_close()


Audit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def audit(tmp_path: Path, index: PlayedIndex) -> Audit:
    """Runs the script over a lock with two packages, which the index has unless a test says otherwise."""
    lock = tmp_path / "requirements.lock"
    lock.write_text(
        f"alpha==1.0 \\\n    --hash=sha256:{digest('alpha-1.0-py3-none-any.whl')} \\\n"
        f"    --hash=sha256:{digest('alpha-1.0.tar.gz')}\n    # via retinue (pyproject.toml)\n"
        f"beta-two==2.0 ; python_full_version < '3.12' \\\n"
        f"    --hash=sha256:{digest('beta_two-2.0-py3-none-any.whl')}\n"
    )
    index.pages |= {
        "/simple/alpha/": page(
            file("alpha-0.9.tar.gz", yanked="an old one"),
            file("alpha-1.0-py3-none-any.whl", yanked=False),
            file("alpha-1.0.tar.gz"),
            file("alpha-1.0-cp314-cp314-win_arm64.whl"),  # came later, and is not locked
        ),
        "/simple/beta-two/": page(file("beta_two-2.0-py3-none-any.whl")),
    }

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not re.match(r"(?i)pip_|uv_|.*_proxy$", k)}
        told = {
            "UV_DEFAULT_INDEX": f"http://{index.address}/simple",
            "PIP_CONFIG_FILE": os.devnull,
            **environ,
        }
        return subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "audit.py"), "--lock", str(lock), *arguments],
            check=False,
            capture_output=True,
            text=True,
            env={**kept, **told},
        )

    return run


@pytest.mark.parametrize("older", [False, True], ids=["json", "html"])
def test_a_lock_that_the_index_agrees_with_passes(index: PlayedIndex, audit: Audit, older: bool) -> None:
    index.html = older
    done = audit()
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 packages, 3 hashes held against the index: 0 findings" in done.stdout
    assert "known vulnerabilities: not looked up" in done.stdout


@pytest.mark.parametrize("older", [False, True], ids=["json", "html"])
@pytest.mark.parametrize(
    ("beta", "said"),
    [
        (page(file("beta_two-2.0-py3-none-any.whl", yanked="leaks \x1b[31mkeys")), "files): leaks ·[31mkeys"),
        (page(file("beta_two-2.0-py3-none-any.whl", yanked="")), "yanked (1 of 1 files): no reason given"),
        (page(file("beta_two-2.0-py3-none-any.whl.swapped")), "1 of 1 locked hashes are of no file there"),
        (
            page(file("beta_two-2.0-py3-none-any.whl") | {"filename": "beta_two-3.0-py3-none-any.whl"}),
            "a locked hash is of another version: beta_two-3.0-py3-none-any.whl",
        ),
        (
            page(file("beta_two-2.0-py3-none-any.whl"), **{"project-status": {"status": "quarantined"}}),
            "the project is quarantined",
        ),
        (None, "not in the index"),
    ],
    ids=["yanked", "yanked without a reason", "wrong hash", "another version", "quarantined", "missing"],
)
def test_a_finding_is_told_with_its_package_and_fails(
    index: PlayedIndex, audit: Audit, beta: Any, said: str, older: bool
) -> None:
    index.html = older
    index.pages["/simple/beta-two/"] = beta
    done = audit()
    assert done.returncode == 1, done.stdout + done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert line.startswith("  beta-two  2.0  ")
    assert said in line


def test_a_known_vulnerability_of_the_locked_version_fails_where_the_index_knows(
    index: PlayedIndex, audit: Audit
) -> None:
    hole = {"id": "EXAMPLE-1", "fixed_in": ["1.1"], "withdrawn": None}
    taken_back = {"id": "EXAMPLE-2", "fixed_in": [], "withdrawn": "2026-01-01T00:00:00Z"}
    index.pages["/pypi/alpha/1.0/json"] = {"vulnerabilities": [hole, taken_back]}
    index.pages["/pypi/beta-two/2.0/json"] = {"vulnerabilities": []}
    done = audit()
    assert done.returncode == 1
    assert "  alpha  1.0  vulnerable: EXAMPLE-1, mended in 1.1" in done.stdout
    assert "EXAMPLE-2" not in done.stdout
    assert "not looked up" not in done.stdout


def test_an_index_that_cannot_be_reached_is_said_and_passes(audit: Audit) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        done = audit(UV_DEFAULT_INDEX=f"http://127.0.0.1:{taken.getsockname()[1]}/simple")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("audit: not audited: the index cannot be reached")


@pytest.mark.parametrize("answer", ["an error", "a page of somebody else", "nothing of ours", "half a page"])
def test_an_index_that_is_none_is_said_and_passes(index: PlayedIndex, audit: Audit, answer: str) -> None:
    if answer == "an error":
        index.status = 503
    elif answer == "nothing of ours":
        index.pages.clear()
    else:
        text = "<html><a href='/login'>log in</a></html>"
        index.pages = dict.fromkeys(index.pages, text if answer != "half a page" else {"files": [{}]})
    done = audit()
    assert (done.returncode, done.stderr) == (0, "")
    assert "not audited:" in done.stdout


def test_what_is_not_answered_in_time_is_not_audited_and_what_is_answered_counts(
    index: PlayedIndex, audit: Audit
) -> None:
    index.pages["/simple/alpha/"]["files"][1]["yanked"] = "broken"
    index.held = {"/simple/beta-two/"}
    done = audit("--seconds", "5")
    assert "not audited: 1 of 2 packages: the index took longer than 5 s" in done.stdout
    assert "  alpha  1.0  yanked (1 of 2 files): broken" in done.stdout
    assert done.returncode == 1


def test_an_index_that_never_answers_passes(index: PlayedIndex, audit: Audit) -> None:
    index.held = {"/simple/alpha/"}
    done = audit("--seconds", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "not audited: 2 of 2 packages" in done.stdout


def test_the_password_of_an_index_is_used_and_not_printed(index: PlayedIndex, audit: Audit) -> None:
    done = audit(UV_DEFAULT_INDEX=f"http://me:se%23cret@{index.address}/simple/")
    assert done.returncode == 0
    assert {header for _, header in index.seen} == {"Basic bWU6c2UjY3JldA=="}
    gone = audit(UV_DEFAULT_INDEX="http://me:se%23cret@127.0.0.1:1/simple")
    for text in (done.stdout, done.stderr, gone.stdout, gone.stderr):
        assert "cret" not in text


def test_the_index_of_uv_is_the_one_that_sets_the_project_up(index: PlayedIndex, audit: Audit) -> None:
    done = audit(UV_DEFAULT_INDEX=f"house=http://{index.address}/simple", PIP_INDEX_URL="http://127.0.0.1:1/")
    assert "2 packages" in done.stdout


def test_a_configured_file_of_pip_is_read(index: PlayedIndex, audit: Audit, tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = http://{index.address}/simple\n")
    done = audit(PIP_CONFIG_FILE=str(tmp_path / "pip.conf"), UV_DEFAULT_INDEX="")
    assert "2 packages" in done.stdout


def test_pip_without_an_index_is_said_and_passes(audit: Audit) -> None:
    done = audit(PIP_NO_INDEX="1", UV_DEFAULT_INDEX="")
    assert (done.returncode, done.stdout) == (0, "audit: not audited: pip is configured with no index\n")


def test_the_audit_is_part_of_the_whole_run_and_its_end_is_waited_for() -> None:
    lines = (ROOT / "scripts" / "test.sh").read_text().splitlines()
    [begun] = [i for i, line in enumerate(lines) if line.startswith(".venv/bin/python scripts/audit.py")]
    waited = lines.index('wait "$audit"')
    tests = next(i for i, line in enumerate(lines) if "bin/pytest" in line)
    assert begun < waited < tests
    assert lines[begun].endswith("&")
    assert lines[begun + 1] == "audit=$!"
