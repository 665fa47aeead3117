"""A process that appends events, for the tests that need a real one.

    python writer.py URL ROOT RUN COUNT

Each line it prints is a seq that the store has confirmed; it waits for a line on its input before it begins.
"""

from __future__ import annotations

import asyncio
import sys
import time

from runlog import Log

from retinue.errors import Fenced
from retinue.store.connect import connect


async def main(url: str, root_id: str, run_id: str, count: int) -> None:
    store = connect(url)
    await store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    log = Log(run_id, root_id=root_id, parent_id=None if root_id == run_id else root_id)
    try:
        await store.append([log.start()])
        print(f"1 {time.time()}", flush=True)
        while log.seq < count:
            await store.append([log.step(), log.reply()])
            print(f"{log.seq} {time.time()}", flush=True)
    except Fenced as error:
        print(f"fenced {error.run_id}", flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
