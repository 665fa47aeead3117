"""`python -m retinue` is `retinue`."""

import sys

from retinue.cli import main

if __name__ == "__main__":
    sys.exit(main())
