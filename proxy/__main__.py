"""`python -m proxy`: the same as `disagg-proxy`."""

import sys

from proxy.cli import main

sys.exit(main())
