"""Projection: what a run will cost, as `weft cost RUN --project` prints it."""

from __future__ import annotations

import json
from argparse import Namespace

import torch

from ....specs.findings import InputError
from ....specs.load import parse_overrides
from ...analysis.estimate import FILL, SHARES, project, run_graph
from ...compile.roofline import peak_flops
from ...train.device import prefers_bfloat16
from ...train.run import load_run
from ..columns import columns, read_sizes

HOUR = 3600.0


def projected(options: Namespace) -> None:
    """Print how long a run takes at some speeds.

    Raises:
        InputError: a speed or a number of devices is not positive.
    """
    if options.devices < 1 or any(speed <= 0 for speed in options.project):
        raise InputError("speeds and devices are positive", help="such as --project 25000")
    if options.peak is not None and options.peak <= 0:
        raise InputError("a ceiling is positive", help="such as --peak 700, in TFLOP/s")
    run, source = load_run(options.spec, parse_overrides(options.set))
    graph = run_graph(run, source)
    lengths = read_sizes(graph, options.axes) if options.axes else None
    found = project(run, source, lengths)
    if options.peak is not None:
        best, where = options.peak * 1e12, f"given: {options.peak:,.0f} TFLOP/s"
    else:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        half = prefers_bfloat16(device)
        best = peak_flops(device, torch.bfloat16 if half else torch.float32)
        kind = "bfloat16" if half else "float32"
        where = f"measured here, {device.type}, {kind}: {best / 1e12:,.2f} TFLOP/s"
    speeds = [(f"{speed:,.0f} tokens/s, given", speed) for speed in options.project]
    speeds += [
        (f"{share:.0%} of the ceiling", found.speed(best, share, options.devices))
        for share in SHARES
    ]
    if options.json:
        rows = [
            {"at": name, "tokens_per_second": speed, "hours": found.seconds(speed) / HOUR}
            for name, speed in speeds
        ]
        said = {**found.as_json(), "peak_flops": best, "devices": options.devices, "rows": rows}
        print(json.dumps(said, indent=2))
        return
    print(
        f"{found.name}: {found.parameters:,} parameters, {found.updates:,} updates of"
        f" {found.tokens_per_update:,.0f} tokens (source and target)"
    )
    print(
        f"work: {found.flops_per_token:,.0f} FLOPs a token, forward and backward;"
        f" {found.flops:.2e} in all\n"
    )
    table = [("speed", "tokens/s", "updates/s", "hours", "device hours")]
    for name, speed in speeds:
        hours = found.seconds(speed) / HOUR
        table.append(
            (
                name,
                f"{speed:,.0f}",
                f"{speed / found.tokens_per_update:,.2f}",
                f"{hours:,.1f}",
                f"{hours * options.devices:,.1f}",
            )
        )
    print("\n".join(columns(table, 1)))
    print(f"\nhours    updates x tokens of an update / tokens a second; devices: {options.devices}")
    print("tokens/s  ceiling x share x devices / FLOPs of a token")
    print(f"ceiling  {where}, of one device")
    print(f"tokens   {FILL:.0%} of what batches may hold; validations are not counted")
