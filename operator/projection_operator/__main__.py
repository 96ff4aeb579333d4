"""`python -m projection_operator` is the command `projection-operator`."""

import sys

from projection_operator.main import main

if __name__ == "__main__":
    sys.exit(main())
