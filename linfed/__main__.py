"""``python -m linfed``: the command line."""

import sys

from linfed.cli import main

if __name__ == "__main__":
    sys.exit(main())
