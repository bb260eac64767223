"""`python -m weft` is the `weft` command."""

import sys

from weft.runtime.cli.main import main

sys.exit(main())
