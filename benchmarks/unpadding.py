"""Compare training steps on unpadded rows with steps on padded batches.

    python benchmarks/unpadding.py            # bfloat16 and float32: ten minutes on 2 cores
    python benchmarks/unpadding.py --quick    # 2 minutes

The step is that of `train.py`: Transformer base with a vocabulary of 37000, forward and backward,
on 34 + 34 sentences whose longest has 60 tokens.  Lengths are drawn uniformly from a range whose
lower end is set to reach a given fraction of padding.  Both variants take turns, and the order
alternates.  Medians are reported.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from contestants import VOCAB
from torch import Tensor
from train import How, weft_step

ROWS, LONGEST = 34, 60
SHARES = (0.0, 0.025, 0.05, 0.1, 0.2, 0.4)
"""Target fractions of padding."""


def sentences(share: float, generator: torch.Generator) -> Tensor:
    """Return ids [B, T] with padding 0; the first sentence has the full length."""
    least = max(1, round(LONGEST * (1 - 2 * share)))
    lengths = torch.randint(least, LONGEST + 1, (ROWS,), generator=generator)
    lengths[0] = LONGEST
    ids = torch.randint(4, VOCAB, (ROWS, LONGEST), generator=generator)
    return ids.masked_fill(torch.arange(LONGEST) >= lengths[:, None], 0)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="bfloat16, two rounds")
    parser.add_argument(
        "--rounds", type=int, default=5, help="measured steps per variant (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rounds = 2 if options.quick else options.rounds
    for half in (True,) if options.quick else (True, False):
        how = How(half, best=False, threads=options.threads)
        steps = {unpadded: weft_step(how, unpadded=unpadded) for unpadded in (False, True)}
        print(f"{'bfloat16' if half else 'float32'}: {steps[True][2]}")
        print("padding   padded    unpadded  unpadded / padded")
        for share in SHARES:
            generator = torch.Generator().manual_seed(1)
            source, target = (sentences(share, generator) for _ in range(2))
            taken: dict[bool, list[float]] = {False: [], True: []}
            for number in range(1 + rounds):
                for unpadded in (False, True) if number % 2 else (True, False):
                    model, loss, _ = steps[unpadded]
                    start = time.perf_counter()
                    loss(source, target).backward()  # type: ignore[no-untyped-call]
                    model.zero_grad(set_to_none=True)
                    if number:  # the first step is a warm-up
                        taken[unpadded].append(time.perf_counter() - start)
            plain, fast = (statistics.median(taken[unpadded]) for unpadded in (False, True))
            found = 1 - float((source > 0).sum() + (target > 0).sum()) / (2 * source.numel())
            print(
                f"{found:7.1%} {plain:7.3f} s {fast:7.3f} s {fast / plain:9.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
