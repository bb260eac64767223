"""The command `weft serve`."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

from ...plugin import (
    DECODING,
    OF_THE_RUN,
    FieldsOf,
    InputError,
    Sample,
    Sampled,
    Search,
    command,
    open_checkpoints,
    options_of,
)
from ...runtime.cli.common import terminal
from ...runtime.cli.common.models import Place
from ...runtime.cli.common.parameters import Checkpoint
from .limits import Access, Limits

if TYPE_CHECKING:
    from .service import Service

PACKAGES = ("fastapi", "prometheus_client", "starlette", "uvicorn")
"""Packages of the extra `serve`."""


@command(
    DECODING,
    "weft serve outputs/demo/averaged --port 8000",
    """curl localhost:8000/translate --json '{"source": "three hundred and seven"}'""",
    note=OF_THE_RUN,
    memory="give a smaller --batch; for single texts, smaller --max-tokens, --max-output and"
    " --max-beam",
)
def serve(
    checkpoint: Checkpoint,
    *,
    access: Annotated[dict[str, Any], FieldsOf(Access, panel="Access")],
    limits: Annotated[
        dict[str, Any],
        FieldsOf(
            Limits,
            panel="Limits",
            flags={
                **{
                    name: f"--max-{name}"
                    for name in (
                        "texts",
                        "characters",
                        "tokens",
                        "phrases",
                        "output",
                        "work",
                        "body",
                    )
                },
                # `--beam` is the search setting.
                "beam": "--max-beam",
                "client": "--max-client-work",
                "patience": "--timeout",
                "upload": "--body-timeout",
                **{name: f"--{name}-timeout" for name in ("head", "stall", "idle")},
            },
        ),
    ],
    search: Search,
    sample: Sample = False,
    sampled: Sampled,
    placement: Place,
) -> int:
    """Serve translations over HTTP until SIGTERM or Ctrl-C.

    Raises:
        InputError: the checkpoint cannot be opened or does not translate, the address is not
            available, or a required package is not installed.
    """
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            help_ = "install the extra: pip install 'weft[serve]'"
            raise InputError(f"serving needs the package '{package}'", help=help_)
    # Opening the model imports torch and FastAPI; until then the server answers without them.
    from ...plugin import bound
    from .access import read_token
    from .server import serve_until_told

    began = time.monotonic()
    reachable, limited = Access(**access), Limits(**limits)
    token = read_token(reachable.token_file)

    def opened() -> Service:
        from .service import Service

        # A server runs indefinitely, so assume that compile time will be repaid.
        searched = options_of(search, sampled, sample=sample)
        model = open_checkpoints(checkpoint, searched, placement, work=math.inf, once=False)
        return Service(model, limited)

    with ExitStack() as stack:
        if not logging.getLogger().handlers:  # with --verbose there is one
            stack.enter_context(terminal.logged(logging.WARNING))
        address = stack.enter_context(bound(reachable.host, reachable.port))
        name, number = address.getsockname()[:2]
        shown = f"[{name}]" if ":" in name else name
        terminal.notice(f"listening on port {number}; opening {checkpoint}")

        def started(service: Service) -> None:
            half = "bfloat16" if service.model.half else "float32"
            terminal.notice(
                f"{service.model.graph.name} ({half}) at http://{shown}:{number}, ready after "
                f"{time.monotonic() - began:.1f} s; POST /translate, GET /openapi.json"
            )

        stopped = serve_until_told(
            opened,
            address,
            limited,
            token=token,
            origins=reachable.cors,
            hosts=reachable.hosts_of(name, token),
            started=started,
        )
    terminal.notice(f"stopped; {stopped.unfinished} sentences unfinished")
    code = int(stopped.unfinished > 0)
    if stopped.busy:
        # The thread that imports or compiles cannot be interrupted, and Python may crash at exit.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
