"""A store error at a write, no memory at an encode, an append or a read: resumed, and nothing paid twice.

A fixed sample of the plan that `scripts/all_faults.py` goes through from end to end: of every scenario and every
kind of fault one moment, another in each scenario.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import faulting
import pytest

KINDS = (*faulting.WRITES, *faulting.MEMORY)


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    restore = faulting.quick()
    yield
    restore()


def sample(scenario: str, how: str, most: int) -> int:
    """Which moment, of so many: another in each scenario and kind."""
    return (5 * faulting.SCENARIOS.index(scenario) + 3 * KINDS.index(how)) % most + 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", faulting.SCENARIOS)
async def test_a_workflow_that_a_fault_befalls_comes_to_the_same_end_and_pays_nothing_twice(
    scenario: str, durable_url: str, tmp_path: Path
) -> None:
    database, figures = faulting.Database(durable_url), faulting.Figures()
    seen = await faulting.moments(database, tmp_path / "whole", scenario)
    for how in KINDS:
        most = seen[faulting.fault_of(how, 0).kind]
        assert most > 0, f"nothing to fail at: {how}"
        at, before = sample(scenario, how, most), figures.struck
        # How many commits and looks at the log there are is not the same in every run: a late moment may not
        # come, the first one does.
        while at > 0 and figures.struck == before:
            await faulting.all_of(database, tmp_path / "trials", scenario, how, [at], figures)
            print(f"{scenario}: {how} at {at} of {most}")
            at //= 2
    assert not figures.failures, "\n".join(figures.failures)
    assert figures.struck == len(KINDS)
    print(figures)
