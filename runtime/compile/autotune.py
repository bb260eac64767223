"""Autotuning: chooses kernels for matrix products and attention by a short measurement.

Float32 matrix products on the CPU and attention can each be computed by several kernels, and
which one is fastest depends on the processor.  The choice is made once per machine and logged by
trainings; a file in the cache keeps the times that it rests on.  Settings and environment variables
override it.

The speed of a machine changes while kernels are timed, so kernels are timed in turns, and compared
by the ratio of their times in the same round.  Rounds are repeated until the interval of the median
ratio decides, and kept, so that another process goes on where this one stopped.
"""

from __future__ import annotations

import hashlib
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, cast, get_args

import torch

from ...blocks.kernels import attention_backends as backends
from ...blocks.kernels import linear as product
from ...blocks.kernels.attention import by_name
from ...blocks.kernels.losses import fused_linear_cross_entropy as losses
from ...blocks.kernels.processor import processor_identity
from ...blocks.kernels.unpad import rows_of, with_padding, without_padding
from ...graphs.ir.execution import KernelChoice
from ...specs.findings import InputError, did_you_mean
from ..system.cache import store, stored

GAIN = 1.05
"""Speedup over the default kernel below which another kernel is not chosen."""
SAME = 1.1
"""Ratio of times below which it does not matter which of two kernels is chosen."""
LEVEL = 0.95
"""Confidence of the interval of a median ratio."""
LEAST = 6
"""Rounds after which `LEVEL` can be reached: the sign test has p = 2 / 2**6 = 0.03."""
MOST = 120
"""Rounds after which a comparison ends, although it is not settled."""
SECONDS = 3.0
"""Seconds after which this process stops a comparison that is not settled."""


class Ratio(NamedTuple):
    """Median of the ratios of two times, with its interval."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        """Return a text such as `1.52 [1.47, 1.60]`."""
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(slots=True)
class KernelTimes:
    """Times of kernels that compute the same."""

    what: str
    """What they compute, such as `attention at 32`."""
    default: str
    """The kernel that is used if none is faster."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Times of each kernel, one for each round."""

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return min(map(len, self.seconds.values()), default=0)

    def gain(self, kernel: str, over: str) -> Ratio:
        """Return how many times as fast as another kernel a kernel is.

        The interval is that of the sign test, which assumes nothing about the distribution.
        """
        times = zip(self.seconds[over], self.seconds[kernel], strict=True)
        ratios = sorted(slow / fast for slow, fast in times)
        rank = _rank(len(ratios))
        return Ratio(ratios[rank], statistics.median(ratios), ratios[-1 - rank])

    @property
    def best(self) -> str:
        """The kernel with the smallest median time other than the default, if there is one."""
        others = [name for name in self.seconds if name != self.default]
        if not others:
            return self.default
        return min(others, key=lambda name: statistics.median(self.seconds[name]))

    @property
    def choice(self) -> str:
        """The fastest kernel, if it is certainly faster than the default by `GAIN`."""
        best = self.best
        certain = self.rounds >= LEAST and self.gain(best, self.default).low >= GAIN
        return best if certain else self.default

    @property
    def is_settled(self) -> bool:
        """Whether more rounds would not change the choice, or are not worth their time."""
        if self.rounds < LEAST:
            return False
        if self.rounds >= MOST:
            return True
        best = self.best
        gain = self.gain(best, self.default)
        if gain.high < GAIN:
            return True
        others = [name for name in self.seconds if name not in (best, self.default)]
        apart = (self.gain(best, name) for name in others)
        return gain.low >= GAIN and all(
            interval.low > 1 or interval.high < SAME for interval in apart
        )

    def measure(self, jobs: Mapping[str, Callable[[], object]]) -> None:
        """Time all kernels in turns until the comparison is settled or `SECONDS` have passed.

        Args:
            jobs: for each kernel, what is timed; it has run once.
        """
        self.seconds = {name: self.seconds.get(name, [])[: self.rounds] for name in jobs}
        begun = time.perf_counter()
        while not self.is_settled:
            for name, run in jobs.items():
                start = time.perf_counter()
                run()
                self.seconds[name].append(time.perf_counter() - start)
            if self.rounds >= LEAST and time.perf_counter() - begun > SECONDS:
                break

    def __str__(self) -> str:
        """Return a text such as `plain for attention at 32: 4.71 [4.60, 4.92] times fused`."""
        best = self.best
        if best == self.default:
            return f"{best} for {self.what}"
        more = "" if self.is_settled and self.rounds < MOST else ", not settled"
        gain = self.gain(best, self.default)
        return f"{best} for {self.what} {gain} x {self.default} in {self.rounds} rounds{more}"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON-compatible data."""
        times = {
            name: [float(f"{value:.6g}") for value in seconds]
            for name, seconds in self.seconds.items()
        }
        return {"what": self.what, "default": self.default, "seconds": times}


def comparison_of(stored: Any, what: str, default: str, kernels: list[str]) -> KernelTimes:
    """Return a stored comparison of these kernels; a new one if it is damaged, or of others."""
    new = KernelTimes(what, default, {name: [] for name in kernels})
    if not isinstance(stored, dict) or stored.get("default") != default:
        return new
    times = stored.get("seconds")
    if not isinstance(times, dict) or set(times) != set(kernels):
        return new
    lists = [series for series in times.values() if isinstance(series, list)]
    values = [value for series in lists for value in series]
    complete = len({len(series) for series in lists}) == 1 and len(lists) == len(times)
    if not complete or not all(isinstance(value, float) and value > 0 for value in values):
        return new
    return KernelTimes(what, default, {name: list(times[name]) for name in kernels})


def _rank(count: int) -> int:
    """Return the rank, from 0, of the low end of the sign test's interval of a median."""
    tail, rank = 0.0, -1
    while rank + 1 < count // 2:
        tail += math.comb(count, rank + 1) / 2**count
        if 2 * tail > 1 - LEVEL:
            break
        rank += 1
    return max(rank, 0)


LENGTHS = (32, 128, 512)
"""Lengths at which attention backends are compared; a length uses the next larger one."""
PRODUCTS, WITHOUT_PADDING = "products", "attention without padding"
"""Names of comparisons."""
Job = Callable[[], object]
"""What is timed."""
TOKENS = 1024
"""Rows of a measured product, and positions of a measured batch."""

_known: dict[str, Kernels] = {}
"""Choices that this process has measured or read from the cache, by key."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """A choice of kernels."""

    product: product.Product
    """Kernel of float32 matrix products on the CPU."""
    attention: Mapping[str, backends.Core]
    """Attention backend by the maximum length it is used for, as text; `*` for longer ones."""
    reason: str
    """How the choice was made, for the log."""
    loss: losses.LossKernel = "torch"
    """Kernel of the softmax of losses."""

    def __str__(self) -> str:
        """Return a one-line summary."""
        return f"kernels: {self.choice}: {self.reason}"

    @property
    def choice(self) -> KernelChoice:
        """The kernels as the passes over a graph take them."""
        return KernelChoice(self.product, dict(self.attention), self.loss)

    def as_json(self) -> dict[str, object]:
        """Return the choice as JSON-compatible data."""
        return {**asdict(self), "attention": dict(self.attention)}


def choose_kernels(
    device: torch.device,
    *,
    half: bool,
    product_kernel: str = "auto",
    attention_kernel: str = "auto",
    loss_kernel: str = "auto",
) -> Kernels:
    """Choose the kernels for a device and a precision; measure once per machine.

    Args:
        device: device of the model.
        half: whether matrix products are in bfloat16.
        product_kernel: kernel of matrix products, or `auto`; overridden by `WEFT_PRODUCT`.
        attention_kernel: attention backend, or `auto`; overridden by `WEFT_ATTENTION`.
        loss_kernel: kernel of losses, or `auto`: Triton on CUDA, where it is installed; overridden
            by `WEFT_LOSS`.

    Raises:
        InputError: the kernel does not exist or is not available on this machine.
    """
    settings = {"product": product_kernel, "attention": attention_kernel, "loss": loss_kernel}
    requested = {name: os.environ.get(_variable(name), choice) for name, choice in settings.items()}
    options = {
        "product": get_args(product.Product),
        "attention": get_args(backends.Core),
        "loss": get_args(losses.LossKernel),
    }
    for name, kernel in requested.items():
        if kernel != "auto" and kernel not in options[name]:
            raise InputError(
                f"no kernel '{kernel}' for {name}",
                location=_place(name),
                help=did_you_mean(kernel, ["auto", *options[name]]),
            )
    if requested["product"] == "onednn" and not product.has_onednn():
        raise InputError(
            "this torch has no kernel 'onednn'",
            location=_place("product"),
            help="set it to 'auto' or 'torch'",
        )
    loss = _loss_kernel(requested["loss"], device)
    measured = None
    if "auto" in (requested["product"], requested["attention"]):
        measured = _measured(device, half=half)
    chosen: product.Product = "torch"
    if requested["product"] == "auto" and measured is not None:
        chosen = measured.product
    elif requested["product"] != "auto":
        chosen = cast("product.Product", requested["product"])
    attention: Mapping[str, backends.Core] = {"*": "fused"}
    if requested["attention"] == "auto" and measured is not None:
        attention = measured.attention
    elif requested["attention"] != "auto":
        attention = {"*": cast("backends.Core", requested["attention"])}
    reason = "requested" if measured is None else measured.reason
    return Kernels(chosen, attention, reason, loss)


def _variable(name: str) -> str:
    """Return the environment variable that overrides a setting of `kernels`."""
    return f"WEFT_{name.upper()}"


def _place(name: str) -> str:
    """Return where a kernel was chosen: in the environment, or in the run."""
    variable = _variable(name)
    return variable if variable in os.environ else f"/kernels/{name}"


def _loss_kernel(requested: str, device: torch.device) -> losses.LossKernel:
    """Return the kernel of losses for a device.

    Raises:
        InputError: the requested one is not available.
    """
    available = device.type == "cuda" and losses.has_triton()
    if requested == "triton" and not available:
        raise InputError(
            f"the kernel 'triton' needs CUDA and the package triton, but not both are there for"
            f" {device}",
            location=_place("loss"),
            help="set it to 'auto' or 'torch'",
        )
    return "triton" if available and requested != "torch" else "torch"


def as_kept(stored: Mapping[str, object]) -> Kernels | None:
    """Return a stored choice, or None if it is invalid or not available on this machine."""
    try:
        kernels = Kernels(
            stored["product"],  # type: ignore[arg-type]
            dict(stored["attention"]),  # type: ignore[call-overload]
            "from the start of the run",
            stored.get("loss", "torch"),  # type: ignore[arg-type]
        )
    except (KeyError, TypeError, ValueError):
        return None
    available = kernels.product == "torch" or product.has_onednn()
    available = available and (kernels.loss == "torch" or losses.has_triton())
    available = available and set(kernels.attention.values()) <= set(get_args(backends.Core))
    return kernels if available else None


def _measured(device: torch.device, *, half: bool) -> Kernels:
    """Return the fastest kernels, by the times in the cache, and new ones until they decide."""
    key = machine_key(device, half=half)
    if key not in _known:
        name = f"kernels/{key}.json"
        cached = stored(name)
        record: dict[str, Any] = cached if isinstance(cached, dict) else {}
        old = record.get("comparisons")
        compared = _compare(device, old if isinstance(old, dict) else {}, half=half)
        if fresh := any(is_new for _, is_new in compared.values()):
            record["measured"] = datetime.now(UTC).date().isoformat()
            record["comparisons"] = {
                what: comparison.as_json() for what, (comparison, _) in compared.items()
            }
            store(name, record)
        when = "measured" if fresh else f"measured on {record.get('measured')}"
        _known[key] = _chosen(
            {what: comparison for what, (comparison, _) in compared.items()}, when
        )
    return _known[key]


def device_identity(device: torch.device) -> str:
    """Return one line that distinguishes devices whose fastest kernels may differ."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_identity()


def machine_key(device: torch.device, *, half: bool) -> str:
    """Return a cache key of everything that a measurement depends on except the model."""
    parts = (
        device.type,
        device_identity(device),
        torch.backends.cpu.get_cpu_capability(),
        torch.__version__,
        str(torch.get_num_threads()),
        str(half),
        *backends.COMPARED,
        "padded and causal, in rounds, in few shapes",
        *(("unpadded by varlen",) if device.type == "cuda" else ()),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _compare(
    device: torch.device, old: Mapping[str, Any], *, half: bool
) -> dict[str, tuple[KernelTimes, bool]]:
    """Compare the kernels of products and, for each length, of attention.

    Returns:
        Each comparison by what the kernels compute, and whether it has new times.
    """
    compared = {}
    for what, makers in _makers(device, half=half).items():
        comparison = comparison_of(old.get(what), what, next(iter(makers)), [*makers])
        is_new = not comparison.is_settled
        if is_new:
            comparison.measure(
                {name: job for name, make in makers.items() if (job := _runnable(make()))}
            )
        compared[what] = comparison, is_new
    return compared


def _makers(device: torch.device, *, half: bool) -> dict[str, dict[str, Callable[[], Job]]]:
    """Return what is compared: for each kernel, a function that makes its job; defaults first."""
    makers: dict[str, dict[str, Callable[[], Job]]] = {}
    if device.type == "cpu" and not half and product.has_onednn():
        makers[PRODUCTS] = {name: partial(_product_job, name) for name in get_args(product.Product)}
    for length in LENGTHS:
        makers[f"attention at {length}"] = {
            backend: partial(_attention_job, backend, length, device, half=half)
            for backend in backends.COMPARED
            if backend != "blocked" or device.type == "cpu"
        }
    if device.type == "cuda" and half:
        makers[WITHOUT_PADDING] = {
            name: partial(_unpadded_job, device, varlen=name == "varlen")
            for name in ("fused", "varlen")
        }
    return makers


def _runnable(job: Job) -> Job | None:
    """Return a job; None if this torch or device lacks its kernel."""
    try:
        job()
    except (ImportError, RuntimeError):
        return None
    return job


def _chosen(compared: Mapping[str, KernelTimes], when: str) -> Kernels:
    """Return the kernels that comparisons choose, with these as the reason."""
    chosen = compared[PRODUCTS].choice if PRODUCTS in compared else "torch"
    attention = {str(length): compared[f"attention at {length}"].choice for length in LENGTHS}
    attention["*"] = attention[str(LENGTHS[-1])]
    if WITHOUT_PADDING in compared and compared[WITHOUT_PADDING].choice == "varlen":
        attention[backends.UNPADDED] = "varlen"
    reason = f"{when}: {'; '.join(map(str, compared.values()))}"
    return Kernels(chosen, attention, reason)  # type: ignore[arg-type]


def _product_job(name: product.Product) -> Job:
    """Return a function that runs the three products of a linear map, forward and backward."""
    x = torch.randn(TOKENS, 512, requires_grad=True)
    layer = product.LinearMap(512, 512)
    layer.product_kernel = name

    def run() -> None:
        layer(x).sum().backward()

    return run


def _attention_job(backend: backends.Core, length: int, device: torch.device, *, half: bool) -> Job:
    """Return a function that runs padded and causal attention, forward and backward."""
    dtype = torch.bfloat16 if half else torch.float32
    shape = (max(1, TOKENS // length), 8, length, 64)
    query, key, value = (
        torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
    )
    mask = torch.ones(shape[0], length, dtype=torch.bool, device=device)
    mask[:, -1] = False

    def run() -> None:
        compute = by_name(backend)
        padded = compute(backends.AttentionCall(query, key, value, mask[:, None, None, :]))
        causal = compute(backends.AttentionCall(query, key, value, None, causal=True))
        (padded + causal).sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


def _unpadded_job(
    device: torch.device, *, varlen: bool, dtype: torch.dtype = torch.bfloat16
) -> Job:
    """Return a function that runs attention over unpadded rows of different lengths.

    Without varlen it pads the rows, as a module does whose backend needs that; both keep the rows
    of a batch, as the modules of a model share them.
    """
    length = LENGTHS[1]
    mask = torch.arange(length) < torch.linspace(length // 2, length, TOKENS // length)[:, None]
    count = int(mask.sum())
    rows = rows_of(mask.to(device), count)
    query, key, value = (
        torch.randn(count, 8, 64, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
    )
    compute = by_name("fused")

    def padded(*, causal: bool) -> torch.Tensor:
        q, k, v = (with_padding(tensor, rows).transpose(1, 2) for tensor in (query, key, value))
        masked = None if causal else rows.mask[:, None, None, :]
        output = compute(backends.AttentionCall(q, k, v, masked, causal))
        return without_padding(output.transpose(1, 2), rows)

    def unpadded(*, causal: bool) -> torch.Tensor:
        return backends.varlen_unpadded(query, key, value, rows, rows, causal=causal)

    def run() -> torch.Tensor:
        attend = unpadded if varlen else padded
        output = attend(causal=False) + attend(causal=True)
        output.sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return output

    return run
