"""Options of `weft cost`."""

from __future__ import annotations

import argparse


def add_cost_options(command: argparse.ArgumentParser) -> None:
    """Add the options for sizes, measurement, projection and output files."""
    command.add_argument(
        "--axes",
        action="append",
        default=[],
        metavar="AXIS=SIZE,...",
        help="axis sizes, such as S=40,T=40 (default: one sequence of 32 tokens)",
    )
    command.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="dtype of activations and of the decoding state (default: %(default)s)",
    )
    command.add_argument(
        "--measure",
        action="store_true",
        help="also run the model forward and backward here and print measured time and memory by "
        "node",
    )
    command.add_argument(
        "--project",
        type=float,
        nargs="*",
        metavar="TOKENS_PER_SECOND",
        help="instead, estimate how long a run (named in place of the spec) takes at these "
        "speeds, in source and target tokens per second, and at several MFU values",
    )
    command.add_argument(
        "--devices",
        type=int,
        default=1,
        help="for --project: number of devices (default: %(default)s)",
    )
    command.add_argument(
        "--peak",
        type=float,
        metavar="TFLOPS",
        help="for --project: peak TFLOP/s of one device (default: measured here)",
    )
    command.add_argument("-o", "--out", help="also plot the costs into this .png file")
    command.add_argument("--json", action="store_true", help="print JSON")
