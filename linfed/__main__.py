"""Entry point of ``python -m linfed``, the same as the command ``linfed``."""

import sys

from linfed.cli import main

if __name__ == "__main__":
    sys.exit(main())
