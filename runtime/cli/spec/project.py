"""Projected duration of a run, as printed by `weft cost RUN --project`."""

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
    """Print how long a run takes at several speeds.

    Raises:
        InputError: a speed, the peak or the number of devices is not positive.
    """
    if options.devices < 1 or any(speed <= 0 for speed in options.project):
        raise InputError(
            "speeds and the number of devices must be positive", help="such as --project 25000"
        )
    if options.peak is not None and options.peak <= 0:
        raise InputError("--peak must be positive", help="such as --peak 700, in TFLOP/s")
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
    speeds += [(f"MFU {share:.0%}", found.speed(best, share, options.devices)) for share in SHARES]
    if options.json:
        rows = [
            {"at": name, "tokens_per_second": speed, "hours": found.seconds(speed) / HOUR}
            for name, speed in speeds
        ]
        report = {**found.as_json(), "peak_flops": best, "devices": options.devices, "rows": rows}
        print(json.dumps(report, indent=2))
        return
    print(
        f"{found.name}: {found.parameters:,} parameters, {found.updates:,} updates of"
        f" {found.tokens_per_update:,.0f} tokens (source and target)"
    )
    print(
        f"work: {found.flops_per_token:,.0f} FLOPs per token, forward and backward;"
        f" {found.flops:.2e} in total\n"
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
    print(f"\nhours    updates x tokens per update / tokens/s; devices: {options.devices}")
    print("tokens/s peak FLOP/s x MFU x devices / FLOPs per token")
    print(f"peak     {where}, per device")
    print(f"tokens   {FILL:.0%} of the batch size limit; validations are not counted")
