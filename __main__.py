"""`python -m weft` is the `weft` command."""

import sys

from .runtime.cli.main import main

sys.exit(main())
