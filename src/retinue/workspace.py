"""Where a run's files live: the project folder it was started in, and its private `/home/agent`.

`Jail` opens paths beneath one folder and nowhere else, race-free. `Workspace` is a private temp folder
that the model knows as `/home/agent`. `Files` is what tools are given: both of them behind one door.
"""

from __future__ import annotations

HOME = "/home/agent"


class Files:
    """All file access of a run."""
