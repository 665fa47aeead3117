"""`python -m retinue` is `retinue`."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] == os.getcwd():
    del sys.path[0]  # what is imported later must not come from the project: commands write there

from retinue.cli import main

if __name__ == "__main__":
    sys.exit(main())
