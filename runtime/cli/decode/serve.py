"""The command `weft serve`: serve translations of a checkpoint over HTTP."""

from __future__ import annotations

import logging
import math
import sys
import time
from argparse import Namespace

from pydantic import ValidationError

from ....specs.findings import InputError
from ..opened import opened
from ..options.decode import LIMITS

PACKAGES = {"fastapi", "uvicorn", "prometheus_client", "starlette"}


def serve(options: Namespace) -> int:
    """Serve translations over HTTP until a stop signal; return 1 if requests were unfinished.

    Raises:
        InputError: the checkpoint cannot be opened or does not translate, the address is not
            available, or a required package is not installed.
    """
    try:
        # Only this command needs these packages.
        from ...serve.limits import Limits
        from ...serve.server import bound, serve_until_told
        from ...serve.service import Service
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        raise InputError(
            f"serving needs the package '{error.name}'",
            help="install the extra: pip install 'weft[serve]'",
        ) from None
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    requested = {
        name.removeprefix("most_"): value
        for name, value in vars(options).items()
        if name.startswith("most_")
    }
    try:
        limits = Limits(**requested)
    except ValidationError as error:
        flags = {name: flag for flag, name, *_ in LIMITS}
        problems = "; ".join(f"{flags[str(one['loc'][0])]}: {one['msg']}" for one in error.errors())
        raise InputError(problems, help="see the limits in weft serve --help") from None
    if options.drain < 0:
        raise InputError("--drain: cannot be negative", help="give a number of seconds, or 0")
    began = time.monotonic()
    with bound(options.host, options.port) as address:
        # A server runs indefinitely, so assume that compile time will be repaid.
        service = Service(opened(options, work=math.inf), limits)
        service.warm()
        host, port = address.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host

        def started() -> None:
            precision = "bfloat16" if service.model.half else "float32"
            print(
                f"{service.model.graph.name} ({precision}) at http://{shown}:{port}, ready after "
                f"{time.monotonic() - began:.1f} s; POST /translate, GET /openapi.json",
                file=sys.stderr,
                flush=True,
            )

        unfinished = serve_until_told(service, address, drain=options.drain, started=started)
    print(f"stopped; {unfinished} sentences unfinished", file=sys.stderr)
    return int(unfinished > 0)
