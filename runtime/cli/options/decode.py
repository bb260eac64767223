"""Decode options: of the commands that use a trained model, line by line or over HTTP; no torch."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable

from .search import add_compile_option, add_place_options, add_search_options

LIMITS: tuple[tuple[str, str, type, float, str], ...] = (
    ("--max-texts", "texts", int, 128, "texts of one request"),
    ("--max-characters", "characters", int, 5000, "characters of one text"),
    ("--max-tokens", "tokens", int, 512, "tokens of one text"),
    ("--max-output", "output", int, 1024, "tokens of one output"),
    ("--max-beam", "beam", int, 16, "hypotheses that a request may ask for"),
    ("--max-body", "body", int, 2**20, "bytes of a request"),
    ("--connections", "connections", int, 1000, "connections at a time; more are answered 503"),
    ("--queue", "queue", int, 1000, "texts that may wait; more are answered 503"),
    ("--timeout", "patience", float, 60.0, "seconds that a request may take"),
    ("--batch", "batch", int, 32, "texts that are decoded together"),
    ("--wait", "wait", float, 0.005, "seconds that a text waits for others to join it"),
)


def add_output_options(translate: ArgumentParser) -> None:
    """Add what `weft translate` writes, and how it shows how long that takes."""
    for flag, help_ in (
        ("--json", "print JSON lines: texts, tokens and scores"),
        ("--alignment", "JSON lines that say which source token each token comes from"),
        ("--attention", "JSON lines with what every head of every attention read"),
        ("--progress", "count lines on stderr even where that is no terminal"),
    ):
        translate.add_argument(flag, action="store_true", help=help_)


def add_serve(add: Callable[[str, str, str, str], ArgumentParser]) -> None:
    """Add the command."""
    serve = add(
        "serve",
        "decode.serve",
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
    for flag, name, type_, default, help_ in LIMITS:
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
    add_compile_option(serve)


_GENERATE: tuple[tuple[str, type, str], ...] = (
    ("--max-new", int, "most tokens that are written (default: 50)"),
    ("--temperature", float, "0 takes the best token, 1 draws from the model (default: 0)"),
    ("--top-k", int, "draw among so many best tokens"),
    ("--top-p", float, "draw among the best tokens that hold so much probability"),
    ("--min-p", float, "draw among tokens at least this share as probable as the best"),
    ("--seed", int, "decides the draws, with the prompt (default: 1)"),
    ("--samples", int, "continuations of each prompt (default: 1)"),
)


def add_generate(add: Callable[[str, str, str, str], ArgumentParser]) -> None:
    """Add the command for models that have no source."""
    generate = add(
        "generate",
        "decode.generate",
        "go on from prompts, line by line, with a decoder-only model",
        "weft generate outputs/llama --temperature 0.8 --top-p 0.9 < prompts.txt",
    )
    generate.add_argument("checkpoint", help="a checkpoint folder, such as outputs/llama")
    for flag, type_, help_ in _GENERATE:
        generate.add_argument(flag, type=type_, metavar=type_.__name__, help=help_)
    generate.add_argument(
        "--ids", action="store_true", help="lines are ids with spaces between them, in and out"
    )
    generate.add_argument(
        "--batch", type=int, default=16, help="prompts at a time (default: %(default)s)"
    )
    generate.add_argument(
        "--json", action="store_true", help="print JSON lines: texts, tokens and log probabilities"
    )
    add_place_options(generate)
    add_compile_option(generate)
