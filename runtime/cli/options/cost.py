"""Cost options: what `weft cost` can be asked beside a spec."""

from __future__ import annotations

import argparse


def add_cost_options(command: argparse.ArgumentParser) -> None:
    """Add sizes, what else to tell, and files to write."""
    command.add_argument(
        "--axes",
        action="append",
        default=[],
        metavar="AXIS=SIZE,...",
        help="how long axes are (default: one sequence of 32)",
    )
    command.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of activations and of what decoding keeps (default: %(default)s)",
    )
    command.add_argument(
        "--measure",
        action="store_true",
        help="also run it forward and backward here: time and memory by node beside the formulas",
    )
    command.add_argument(
        "--project",
        type=float,
        nargs="*",
        metavar="TOKENS_PER_SECOND",
        help="instead: how long a run (named in place of the spec) takes at these speeds, source "
        "and target tokens together, and at shares of the device's ceiling",
    )
    command.add_argument(
        "--devices", type=int, default=1, help="for --project: how many (default: %(default)s)"
    )
    command.add_argument(
        "--peak",
        type=float,
        metavar="TFLOPS",
        help="for --project: what matrix products reach on one device (default: measured here)",
    )
    command.add_argument("-o", "--out", help="also plot it: .png")
    command.add_argument("--json", action="store_true", help="print JSON")
