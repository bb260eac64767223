"""Options for search, sampling and devices, shared by decoding commands; no torch."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

_SAMPLE = ("temperature", "top_k", "top_p", "min_p", "seed")
_NUMBERS: tuple[tuple[str, type, str], ...] = (
    ("beam", int, "beam size: hypotheses kept per sentence; 1 is greedy search (default: 4)"),
    ("alpha", float, "exponent of the length penalty; 0 disables it (default: 0.6)"),
    ("max_factor", float, "output length limit, in tokens per source token (default: 1)"),
    ("max_extra", int, "tokens added to that limit (default: 50)"),
    ("min_length", int, "least output length, in tokens (default: 0)"),
    ("nbest", int, "outputs per sentence, best first; widens the beam if needed (default: 1)"),
    ("groups", int, "number of groups in diverse beam search; divides --beam (default: 1)"),
    (
        "diversity",
        float,
        "log probability taken off a token per earlier group that chose it (default: 0.5)",
    ),
    ("iterations", int, "mask-predict only: number of decoding iterations (default: 10)"),
    ("lengths", int, "mask-predict only: number of output lengths to try (default: 5)"),
    ("no_repeat", int, "n-gram size, in tokens, that may not repeat; 0 allows all (default: 0)"),
    (
        "repetition_penalty",
        float,
        "factor on the log probability of tokens already in the output (default: 1)",
    ),
)
_DRAWS: tuple[tuple[str, type, str], ...] = (
    (
        "temperature",
        float,
        "divide logits by this; below 1 sharpens, above 1 flattens (default: 1)",
    ),
    ("top_k", int, "sample from the k most probable tokens; 0 is all (default: 0)"),
    ("top_p", float, "sample from the fewest tokens with this total probability (default: 1)"),
    (
        "min_p",
        float,
        "sample from tokens at least this fraction as probable as the best (default: 0)",
    ),
    ("seed", int, "random seed, combined with the source text (default: 1)"),
)


def add_search_options(command: ArgumentParser) -> None:
    """Add the options for search, sampling and devices to a command."""
    search = command.add_argument_group(
        "search",
        "an option that is not given takes its value from the checkpoint's run;\n"
        "the defaults below apply where the run has no value",
    )
    for name, type_, help_ in _NUMBERS:
        search.add_argument(_flag(name), type=type_, help=help_, metavar=type_.__name__)
    search.add_argument(
        "--penalty",
        choices=("gnmt", "length", "none"),
        help="divide log P by ((5+length)/6)^alpha, by length^alpha, or by 1 (default: gnmt)",
    )
    search.add_argument(
        "--ends",
        choices=("any", "best"),
        help="candidates that may end a hypothesis: any of the 2 x beam best, or only the beam "
        "best (default: any)",
    )
    search.add_argument(
        "--avoid",
        action="append",
        metavar="PHRASE",
        help="a word or phrase that no output may contain; may be given several times",
    )
    draw = command.add_argument_group(
        "sampling", "any of these options samples outputs at random instead of searching"
    )
    draw.add_argument(
        "--sample", action="store_true", help="sample from the model's unmodified distribution"
    )
    for name, type_, help_ in _DRAWS:
        draw.add_argument(_flag(name), type=type_, help=help_, metavar=type_.__name__)
    add_place_options(command)
    command.add_argument(
        "--ensemble",
        action="append",
        default=[],
        metavar="CHECKPOINT",
        help="another checkpoint with the same tokenizer; the models' probabilities are averaged; "
        "may be given several times",
    )


def add_place_options(command: ArgumentParser) -> None:
    """Add the options for device and precision."""
    command.add_argument(
        "--device",
        default="auto",
        choices=("auto", "cpu", "cuda"),
        help="device to compute on; auto is cuda if available, else cpu (default: %(default)s)",
    )
    command.add_argument(
        "--precision",
        default="auto",
        choices=("auto", "float32", "bfloat16"),
        help="dtype of matrix products; auto is bfloat16 where it is fast (default: %(default)s)",
    )


def add_compile_option(command: ArgumentParser) -> None:
    """Add the option that compiles decoding steps."""
    command.add_argument(
        "--compile",
        default="auto",
        choices=("auto", "on", "off"),
        help="compile decoding steps with torch.compile; auto measures whether this is faster, "
        "once there is enough work to repay it, and logs the choice to stderr "
        "(default: %(default)s)",
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def search_of(options: Namespace) -> dict[str, Any]:
    """Return the search settings that were given."""
    names = [*(name for name, _, _ in _NUMBERS), "penalty", "ends", "avoid"]
    given = {name: getattr(options, name) for name in names}
    found = {name: value for name, value in given.items() if value is not None}
    draws = {name: getattr(options, name) for name in _SAMPLE}
    draws = {name: value for name, value in draws.items() if value is not None}
    if options.sample or draws:
        found["sample"] = draws
    # Widen the beam to return this many outputs, unless the user set its width.
    if "nbest" in found and "beam" not in found:
        found["beam"] = max(found["nbest"], found.get("groups", 1))
    return found
