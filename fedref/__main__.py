"""`python -m fedref` is `fedref`."""

import sys

from fedref.commands import main

if __name__ == "__main__":
    sys.exit(main())
