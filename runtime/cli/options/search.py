"""Search options: how outputs are looked for, as options of commands; no torch."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

_SAMPLE = ("temperature", "top_k", "top_p", "min_p", "seed")
_NUMBERS: tuple[tuple[str, type, str], ...] = (
    ("beam", int, "hypotheses a sentence; 1 takes the best token each time"),
    ("alpha", float, "strength of the length penalty"),
    ("max_factor", float, "most tokens for each token of the source"),
    ("max_extra", int, "most tokens beyond that"),
    ("min_length", int, "fewest tokens"),
    ("nbest", int, "outputs of each sentence, best first"),
    ("groups", int, "groups of the beam that keep apart (diverse beam search)"),
    ("diversity", float, "what a token costs that an earlier group took"),
    ("iterations", int, "of mask-predict, how often words are written"),
    ("lengths", int, "of mask-predict, how many lengths are tried"),
    ("no_repeat", int, "length of runs of tokens of which none comes twice"),
    (
        "repetition_penalty",
        float,
        "what log p of a token is multiplied by that was written already",
    ),
)
_DRAWS: tuple[tuple[str, type, str], ...] = (
    ("temperature", float, "below 1 sharper, above 1 flatter"),
    ("top_k", int, "draw among so many best tokens"),
    ("top_p", float, "draw among the best tokens that hold so much probability"),
    ("min_p", float, "draw among tokens at least this share as probable as the best"),
    ("seed", int, "decides the draws, with the source"),
)


def add_search_options(command: ArgumentParser) -> None:
    """Add the options of searching, sampling and computing to a command."""
    search = command.add_argument_group("search", "the run's settings hold where none is given")
    for name, type_, help_ in _NUMBERS:
        search.add_argument(_flag(name), type=type_, help=help_, metavar=type_.__name__)
    search.add_argument(
        "--penalty",
        choices=("gnmt", "length", "none"),
        help="divide log P by ((5+length)/6)^alpha, by length^alpha, or not",
    )
    search.add_argument(
        "--ends",
        choices=("any", "best"),
        help="what may end: any of the continuations looked at, or only the beam's best",
    )
    search.add_argument(
        "--avoid",
        action="append",
        metavar="PHRASE",
        help="a word or phrase that no output holds, as often as needed",
    )
    draw = command.add_argument_group("sampling", "any of these draws outputs by chance")
    draw.add_argument("--sample", action="store_true", help="draw from the model as it is")
    for name, type_, help_ in _DRAWS:
        draw.add_argument(_flag(name), type=type_, help=help_, metavar=type_.__name__)
    add_place_options(command)
    command.add_argument(
        "--ensemble",
        action="append",
        default=[],
        metavar="CHECKPOINT",
        help="another checkpoint with the same tokenizer, whose probabilities are averaged "
        "with the first's; as often as needed",
    )


def add_place_options(command: ArgumentParser) -> None:
    """Add the options that say where to compute, and how exactly."""
    command.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    command.add_argument(
        "--precision",
        default="auto",
        choices=("auto", "float32", "bfloat16"),
        help="of matrix products (default: bfloat16 where that is fast)",
    )


def add_compile_option(command: ArgumentParser) -> None:
    """Add the option that says whether steps of decoding are compiled."""
    command.add_argument(
        "--compile",
        default="auto",
        choices=("auto", "on", "off"),
        help="steps of decoding by torch.compile: auto measures once, when there is work enough "
        "to win the time back, and says on stderr what it found (default: %(default)s)",
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
    # More outputs than the beam holds need a wider one, unless its width was given, too.
    if "nbest" in found and "beam" not in found:
        found["beam"] = max(found["nbest"], found.get("groups", 1))
    return found
