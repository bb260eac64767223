"""Serve options: of the command that puts a checkpoint behind HTTP; no torch."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable

from .search_options import add_search_options

_LIMITS: tuple[tuple[str, str, type, float, str], ...] = (
    ("--max-texts", "texts", int, 128, "texts of one request"),
    ("--max-characters", "characters", int, 5000, "characters of one text"),
    ("--max-tokens", "tokens", int, 512, "tokens of one text"),
    ("--max-output", "output", int, 1024, "tokens of one output"),
    ("--max-beam", "beam", int, 16, "hypotheses that a request may ask for"),
    ("--max-body", "body", int, 2**20, "bytes of a request"),
    ("--queue", "queue", int, 1000, "texts that may wait; more are answered 503"),
    ("--timeout", "patience", float, 60.0, "seconds that a request may take"),
    ("--batch", "batch", int, 32, "texts that are decoded together"),
    ("--wait", "wait", float, 0.005, "seconds that a text waits for others to join it"),
)


def add_serve(add: Callable[[str, str, str, str], ArgumentParser]) -> None:
    """Add the command."""
    serve = add(
        "serve",
        "serve_command",
        "serve translations over HTTP, until SIGTERM or ctrl-C",
        "weft serve outputs/demo/averaged --port 8000\n"
        '  curl localhost:8000/translate --json \'{"source": "three hundred and seven"}\'',
    )
    serve.add_argument("checkpoint", help="a checkpoint folder, such as outputs/demo/averaged")
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="interface to listen at; 0.0.0.0 is all (default: %(default)s, this machine alone)",
    )
    serve.add_argument(
        "--port", type=int, default=8000, help="0 takes any that is free (default: %(default)s)"
    )
    limits = serve.add_argument_group("limits")
    for flag, name, type_, default, help_ in _LIMITS:
        limits.add_argument(
            flag,
            dest=f"most_{name}",
            type=type_,
            default=default,
            metavar=type_.__name__,
            help=f"{help_} (default: %(default)s)",
        )
    limits.add_argument(
        "--drain",
        type=float,
        default=30.0,
        metavar="float",
        help="seconds to finish what was taken on when told to stop (default: %(default)s)",
    )
    add_search_options(serve)
