"""``python -m strandline.conformance``: replays recorded traces (:mod:`strandline.testing.conformance`)."""

import sys

from strandline.testing.conformance import main

if __name__ == "__main__":
    sys.exit(main())
