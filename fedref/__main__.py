"""The command line, for `python -m fedref`."""

import sys

from fedref.lab.commands import main

if __name__ == "__main__":
    sys.exit(main())
