"""A real MediaWiki on loopback, for tests and for trying the wiki tools without a network.

    python scripts/mediawiki.py                  set up once, then serve until interrupted
    python scripts/mediawiki.py --setup-only     only set up; prints the folder

Works on Debian as root, from Debian's own packages: PHP is installed, MediaWiki is unpacked into a cache
folder with an SQLite database and a few pages. Nothing is started by the system, and no web server of its
own is installed. A second run finds the first one's work; two at a time wait for each other.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

PHP = ("php-cli", "php-sqlite3", "php-mbstring", "php-xml", "php-intl")
PAGES = {
    "Alan Turing": (
        "'''Alan Turing''' was a mathematician who asked whether machines can think. He described a "
        "[[Turing machine|machine]] with a tape before anyone had built a computer.\n\n"
        "== Work ==\nIn the war he broke codes. Later he studied how animals get their spots.\n"
    ),
    "Turing": "#REDIRECT [[Alan Turing]]",
    "Turing machine": "A '''Turing machine''' reads and writes one cell of a tape at a time.",
    "Ada Lovelace": (
        "'''Ada Lovelace''' wrote notes on an engine of [[Charles Babbage]] & how to make it count.\n"
    ),
    "AC/DC": "'''AC/DC''' is a band whose name has a slash in it.",
    "What Is Life?": "'''What Is Life?''' is a book with a question mark in its title.",
    "Łódź": "'''Łódź''' is a city with four letters, three of which are not in ASCII.",
}
SETTINGS = """
# Added for tests: address and database come from the environment of the server.
if ( getenv( 'WIKI_SERVER' ) ) { $wgServer = getenv( 'WIKI_SERVER' ); }
if ( getenv( 'WIKI_DATA' ) ) { $wgSQLiteDataDir = getenv( 'WIKI_DATA' ); }
wfLoadExtension( 'TextExtracts' );
$wgJobRunRate = 0;
$wgMainCacheType = CACHE_NONE;
$wgUseInstantCommons = false;
"""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "retinue-tests"


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time: others that want the same wait, and then find it done."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def quiet(*command: str, cwd: Path | None = None) -> str:
    """Run; the output is shown only if it fails."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def apt(*arguments: str, cwd: Path | None = None) -> None:
    """`apt-get`, after an update if the lists are missing or too old to be true."""
    command = ("apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=120", *arguments)
    first = subprocess.run(command, cwd=cwd, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if first.returncode != 0:
        quiet("apt-get", "-q", "update")
        quiet(*command, cwd=cwd)


def unpack(packages: tuple[str, ...], into: Path) -> None:
    """Debian packages as files in a folder: nothing is configured, nothing is started."""
    into.mkdir(parents=True, exist_ok=True)
    apt("download", *packages, cwd=into)
    for deb in into.glob("*.deb"):
        quiet("dpkg-deb", "-x", str(deb), str(into))
        deb.unlink()


def setup() -> Path:
    """The folder of a wiki that is ready to be served: `site` to serve, `data` to copy."""
    stamp = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"mediawiki-{stamp}"
    with locked("mediawiki"):
        if (folder / "ready").exists() and shutil.which("php"):
            return folder
        if not shutil.which("php"):
            apt("install", "--no-install-recommends", *PHP)
        shutil.rmtree(folder, ignore_errors=True)
        unpack(("mediawiki", "mediawiki-classes"), folder / "deb")
        _build(folder)
        (folder / "ready").touch()
    return folder


def _build(folder: Path) -> None:
    wiki = folder / "deb" / "usr" / "share" / "mediawiki"
    for name in ("extensions", "config", "images", "LocalSettings.php"):
        (wiki / name).unlink(missing_ok=True)  # links to where the package would be installed
    (wiki / "extensions").symlink_to("extensions-core")
    (wiki / "images").mkdir()
    for link in [path for path in wiki.rglob("*") if path.is_symlink()]:
        target = os.readlink(link)
        if target.startswith("/"):
            link.unlink()
            link.symlink_to(folder / "deb" / target.lstrip("/"))
    (folder / "site").mkdir()
    (folder / "site" / "w").symlink_to(wiki)
    data = folder / "data"
    data.mkdir()
    run = wiki / "maintenance"
    quiet(
        *("php", str(run / "install.php"), "--dbtype=sqlite", f"--dbpath={data}", "--dbname=wiki"),
        *("--server=http://localhost", "--scriptpath=/w", "--lang=en", f"--pass={secrets.token_hex(12)}"),
        *("Test wiki", "Keeper"),
    )
    with (wiki / "LocalSettings.php").open("a") as handle:
        handle.write(SETTINGS)
    dump = folder / "pages.xml"
    dump.write_text(pages_xml(), "utf-8")
    quiet("php", str(run / "importDump.php"), "--no-updates", str(dump))
    quiet("php", str(run / "rebuildtextindex.php"))
    quiet("php", str(run / "initSiteStats.php"), "--update")


def pages_xml() -> str:
    pages = "".join(
        f"<page><title>{escape(title)}</title><ns>0</ns><id>{number}</id><revision><id>{number}</id>"
        "<timestamp>2026-01-02T03:04:05Z</timestamp><contributor><username>Keeper</username></contributor>"
        f"<model>wikitext</model><format>text/x-wiki</format><text>{escape(text)}</text></revision></page>"
        for number, (title, text) in enumerate(PAGES.items(), 10)
    )
    return f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">{pages}</mediawiki>'


def serve(folder: Path, port: int, data: Path) -> subprocess.Popen[bytes]:
    """PHP's own server, in a process group of its own: it starts workers."""
    environment = {
        **os.environ,
        "WIKI_SERVER": f"http://127.0.0.1:{port}",
        "WIKI_DATA": str(data),
        "PHP_CLI_SERVER_WORKERS": "4",
    }
    return subprocess.Popen(
        ["php", "-d", "opcache.enable_cli=1", "-S", f"127.0.0.1:{port}", "-t", str(folder / "site")],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server with all its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(5)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--setup-only", action="store_true")
    parser.add_argument("--port", type=int, default=8480)
    options = parser.parse_args()
    folder = setup()
    if options.setup_only:
        print(folder)
        return
    process = serve(folder, options.port, folder / "data")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # either way, the workers must go too
    print(f'knowledge.base_urls = {{ wikipedia = "http://127.0.0.1:{options.port}" }}', file=sys.stderr)
    try:
        process.wait()
    except KeyboardInterrupt:
        pass
    finally:
        stop(process)


if __name__ == "__main__":
    main()
