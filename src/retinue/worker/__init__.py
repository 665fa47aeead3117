"""Workers: processes that do the runs of a PostgreSQL database, on any number of machines.

`Worker` is one of them. `claims` is its side of the queue, `legs` is what it does with one job, `rest`
when it lets go of a workflow that only waits, and `health` what it tells whoever looks after it. Built on
`Retinue` and on PgQueuer; a run is done by the same loop as everywhere else.
"""

from retinue.worker.worker import Worker

__all__ = ["Worker"]
