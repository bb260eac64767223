"""Options of `weft translate`, `weft generate` and `weft serve`; no torch."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable

from .search import add_compile_option, add_place_options, add_search_options

LIMITS: tuple[tuple[str, str, type, float, str], ...] = (
    ("--max-texts", "texts", int, 128, "most texts in one request"),
    ("--max-characters", "characters", int, 5000, "most characters in one text"),
    ("--max-tokens", "tokens", int, 512, "most tokens in one text"),
    ("--max-output", "output", int, 1024, "most tokens in one output"),
    ("--max-beam", "beam", int, 16, "largest beam that a request may set"),
    ("--max-body", "body", int, 2**20, "largest request body, in bytes"),
    ("--connections", "connections", int, 1000, "most open connections; beyond it, reply 503"),
    ("--queue", "queue", int, 1000, "most waiting texts; beyond it, reply 503"),
    ("--timeout", "patience", float, 60.0, "time limit of a request, in seconds"),
    ("--batch", "batch", int, 32, "most texts decoded together"),
    ("--wait", "wait", float, 0.005, "time a text waits for others to join its batch, in seconds"),
)


def add_output_options(translate: ArgumentParser) -> None:
    """Add the output and progress options of `weft translate`."""
    for flag, help_ in (
        ("--json", "print one JSON object per line: texts, tokens and scores"),
        ("--alignment", "print JSON lines that give the aligned source token of each token"),
        ("--attention", "print JSON lines with the attention weights of every head"),
        ("--progress", "count lines on stderr even if stderr is not a terminal"),
    ):
        translate.add_argument(flag, action="store_true", help=help_)


def add_serve(add: Callable[[str, str, str, str], ArgumentParser]) -> None:
    """Add the `serve` command."""
    serve = add(
        "serve",
        "decode.serve",
        "serve translations over HTTP until SIGTERM or Ctrl-C",
        "weft serve outputs/demo/averaged --port 8000\n"
        '  curl localhost:8000/translate --json \'{"source": "three hundred and seven"}\'',
    )
    serve.add_argument("checkpoint", help="a checkpoint folder, such as outputs/demo/averaged")
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 is every interface (default: %(default)s, this "
        "machine only)",
    )
    serve.add_argument(
        "--port", type=int, default=8000, help="port; 0 picks a free one (default: %(default)s)"
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
        help="time to finish accepted requests after a stop signal, in seconds (default: "
        "%(default)s)",
    )
    add_search_options(serve)
    add_compile_option(serve)


_GENERATE: tuple[tuple[str, type, str], ...] = (
    ("--max-new", int, "most tokens to generate per prompt (default: 50)"),
    (
        "--temperature",
        float,
        "0 takes the most probable token; above 0, divide the logits by it and sample (default: 0)",
    ),
    ("--top-k", int, "sample from the k most probable tokens (default: all)"),
    ("--top-p", float, "sample from the fewest tokens with this total probability (default: 1)"),
    (
        "--min-p",
        float,
        "sample from tokens at least this fraction as probable as the best (default: 0)",
    ),
    ("--seed", int, "random seed, combined with the prompt (default: 1)"),
    ("--samples", int, "number of continuations per prompt (default: 1)"),
)


def add_generate(add: Callable[[str, str, str, str], ArgumentParser]) -> None:
    """Add the `generate` command, for decoder-only models."""
    generate = add(
        "generate",
        "decode.generate",
        "continue prompts from stdin, line by line, with a decoder-only model",
        "weft generate outputs/llama --temperature 0.8 --top-p 0.9 < prompts.txt",
    )
    generate.add_argument("checkpoint", help="a checkpoint folder, such as outputs/llama")
    for flag, type_, help_ in _GENERATE:
        generate.add_argument(flag, type=type_, metavar=type_.__name__, help=help_)
    generate.add_argument(
        "--ids", action="store_true", help="read and write token ids separated by spaces, not text"
    )
    generate.add_argument(
        "--batch", type=int, default=16, help="prompts decoded together (default: %(default)s)"
    )
    generate.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per line: texts, tokens and log probabilities",
    )
    add_place_options(generate)
    add_compile_option(generate)
