"""Kernels: which of several ways to compute the same thing is used, by a short measurement.

Matrix products of float32 on the CPU, and the core of attention, can be computed by more
than one kernel, and which is fastest depends on the processor.  A choice is made once for
a machine, kept in a file, printed by trainings, and can be set from outside.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import cast, get_args

import torch

from ...blocks.kernels import attention_backends as cores
from ...blocks.kernels import linear as product
from ...specs.findings import InputError, did_you_mean
from ..system.cache import store, stored
from ..system.cpu import processor_identity

LENGTHS = (32, 128, 512)
"""Positions at which cores of attention are compared; the one nearest from above decides."""
GAIN = 1.15
"""How many times as fast as torch's own another kernel must be to be chosen."""
RUNS = 5
"""Runs of each contestant after one to warm up; the median counts."""
TOKENS = 1024
"""Rows of a measured product, and positions of a measured batch."""

_known: dict[str, Kernels] = {}
"""What this process has measured or read, by key."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """A choice of kernels."""

    product: product.Product
    """What multiplies float32 matrices on the CPU."""
    attention: Mapping[str, cores.Core]
    """Positions up to which a core is used, as text, to the core; `*` beyond the last."""
    reason: str

    def __str__(self) -> str:
        """Say in one line what runs."""
        names = set(self.attention.values())
        parts = [f"{core} to {limit}" for limit, core in self.attention.items()]
        how = names.pop() if len(names) == 1 else ", ".join(parts).replace("to *", "beyond")
        return f"kernels: products by {self.product}, attention {how}: {self.reason}"

    def as_json(self) -> dict[str, object]:
        """Return the choice as plain data."""
        return {**asdict(self), "attention": dict(self.attention)}


def choose_kernels(
    device: torch.device,
    *,
    half: bool,
    product_kernel: str = "auto",
    attention_kernel: str = "auto",
) -> Kernels:
    """Return the kernels for a device and a precision, measured once for a machine.

    Args:
        device: where the model runs.
        half: whether matrix products are in bfloat16.
        product_kernel: a kernel for products, or `auto`; `WEFT_PRODUCT` goes before it.
        attention_kernel: a core of attention, or `auto`; `WEFT_ATTENTION` goes before it.

    Raises:
        InputError: no such kernel, or not on this machine.
    """
    requested = {
        "product": os.environ.get("WEFT_PRODUCT", product_kernel),
        "attention": os.environ.get("WEFT_ATTENTION", attention_kernel),
    }
    known = {"product": get_args(product.Product), "attention": get_args(cores.Core)}
    for name, kernel in requested.items():
        if kernel != "auto" and kernel not in known[name]:
            raise InputError(
                f"no kernel '{kernel}' for {name}",
                place=f"/kernels/{name}",
                help=did_you_mean(kernel, ["auto", *known[name]]),
            )
    if requested["product"] == "onednn" and not product.has_onednn():
        raise InputError("this torch has no kernel 'onednn'", place="/kernels/product")
    measured = None
    if "auto" in requested.values():
        measured = _measured(device, half=half)
    chosen: product.Product = "torch"
    if requested["product"] == "auto" and measured is not None:
        chosen = measured.product
    elif requested["product"] != "auto":
        chosen = cast("product.Product", requested["product"])
    attention: Mapping[str, cores.Core] = {"*": "fused"}
    if requested["attention"] == "auto" and measured is not None:
        attention = measured.attention
    elif requested["attention"] != "auto":
        attention = {"*": cast("cores.Core", requested["attention"])}
    return Kernels(chosen, attention, "asked for" if measured is None else measured.reason)


def as_kept(stored: Mapping[str, object]) -> Kernels | None:
    """Return a choice that a checkpoint holds, or None where this machine cannot follow it."""
    try:
        kernels = Kernels(stored["product"], dict(stored["attention"]), "as the run was begun")  # type: ignore[arg-type, call-overload]
    except (KeyError, TypeError, ValueError):
        return None
    able = kernels.product == "torch" or product.has_onednn()
    able = able and set(kernels.attention.values()) <= set(get_args(cores.Core))
    return kernels if able else None


@contextmanager
def using(kernels: Kernels) -> Iterator[None]:
    """Compute by these kernels, in this process, until the context ends."""
    before = product.product_in_use(), cores.in_use()
    product.use_product(kernels.product)
    cores.use(kernels.attention)
    try:
        yield
    finally:
        product.use_product(before[0])
        cores.use(before[1])


def _measured(device: torch.device, *, half: bool) -> Kernels:
    """Return what measuring found, in this process, or before on this machine."""
    key = machine_key(device, half=half)
    if key not in _known:
        name = f"kernels/{key}.json"
        before = as_kept(stored(name))
        if before is None:
            found = _measure(device, half=half)
            store(name, found.as_json())
        else:
            found = Kernels(before.product, before.attention, "measured before")
        _known[key] = found
    return _known[key]


def device_identity(device: torch.device) -> str:
    """Return one line that differs between devices on which other kernels may be fastest."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_identity()


def machine_key(device: torch.device, *, half: bool) -> str:
    """Return a name for all that a measurement depends on, the model aside."""
    parts = (
        device.type,
        device_identity(device),
        torch.backends.cpu.get_cpu_capability(),
        torch.__version__,
        str(torch.get_num_threads()),
        str(half),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _measure(device: torch.device, *, half: bool) -> Kernels:
    """Compare all kernels that do one thing."""
    words, chosen = [], "torch"
    if device.type == "cpu" and not half and product.has_onednn():
        seconds = {name: _seconds(_product_job(name)) for name in get_args(product.Product)}
        gain = seconds["torch"] / seconds["onednn"]
        chosen = "onednn" if gain >= GAIN else "torch"
        words.append(f"onednn's products {gain:.2f} x as fast")
    attention: dict[str, cores.Core] = {}
    for length in LENGTHS:
        spent = {
            core: _seconds(_attention_job(core, length, device, half=half))
            for core in cores.COMPARED
        }
        best = min(spent, key=lambda core: spent[core])
        attention[str(length)] = best
        words.append(f"{best} at {length} {max(spent.values()) / spent[best]:.1f} x")
    attention["*"] = attention[str(LENGTHS[-1])]
    return Kernels(chosen, attention, f"measured {', '.join(words)}")  # type: ignore[arg-type]


def _product_job(name: product.Product) -> Callable[[], object]:
    """Return a run of the three products of a linear map."""
    x = torch.randn(TOKENS, 512, requires_grad=True)
    layer = product.LinearMap(512, 512)

    def run() -> None:
        with using(Kernels(name, cores.in_use(), "")):
            layer(x).sum().backward()

    return run


def _attention_job(
    core: cores.Core, length: int, device: torch.device, *, half: bool
) -> Callable[[], object]:
    """Return a run of attention with padding, forward and backward."""
    kind = torch.bfloat16 if half else torch.float32
    shape = (max(1, TOKENS // length), 8, length, 64)
    query, key, value = (
        torch.randn(shape, device=device, dtype=kind, requires_grad=True) for _ in range(3)
    )
    mask = torch.ones(shape[0], length, dtype=torch.bool, device=device)
    mask[:, -1] = False

    def run() -> None:
        compute = cores.by_name(core)
        y = compute(query, key, value, mask[:, None, None, :], causal=False, dropout=0.0)
        y.sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


def _seconds(run: Callable[[], object]) -> float:
    """Return the median seconds of a run, after one to warm up."""
    times = []
    for index in range(RUNS + 1):
        start = time.perf_counter()
        run()
        if index:
            times.append(time.perf_counter() - start)
    return statistics.median(times)
