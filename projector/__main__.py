"""`python -m projector`."""

import sys

from projector.cli import main

if __name__ == "__main__":
    sys.exit(main())
