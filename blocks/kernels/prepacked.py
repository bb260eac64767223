"""Linear maps with prepacked matrices, for decoding on a CPU.

A decoder multiplies every matrix with few rows, at every step.  Prepacking reorders its
matrices for the kernels of the processor, and converts them to bfloat16 if requested, once
before the first step instead of at each one.  Generated code calls `prepack` where the graph has
prepacked matrices.

Measured on an AMD processor with AVX-512: products in float32 take 0.45 of the time of
torch's default, from 4 rows to 2,048; in bfloat16 0.75 to 0.95.

The output projection is the largest product of a decoding step.  Where a batch needs few of its
outputs, as with a shortlist, `select_outputs` selects their rows of the matrix once, when decoding
begins; generated code then calls the smaller map at each step.  It computes as the other one does:
prepacked, in int8, or plainly.

Axes: C selected outputs.

Source: of selecting outputs, Jean et al. 2015, section 3.3.
"""

from __future__ import annotations

import abc
import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import processor
from .linear import JoinableMap, LinearMap, linear

_LIBRARY = torch.library.Library("weft", "DEF")
_LIBRARY.define("packed_linear(Tensor x, Tensor place, SymInt width, ScalarType dtype) -> Tensor")
"""A prepacked product for torch.compile, which cannot trace a prepacked matrix."""
_PLACES: weakref.WeakValueDictionary[int, InferenceLinear] = weakref.WeakValueDictionary()
_counted = itertools.count()


class InferenceLinear(nn.Module, JoinableMap, abc.ABC):
    """A linear map for inference only, with its matrix in another form besides its weights."""

    _packed: Any = None
    _joined: tuple[tuple[Any, ...], Any] | None = None
    """This map and those that are one product with it, and their matrices in the other form."""

    def __init__(self, in_features: int, out_features: int, dtype: torch.dtype) -> None:
        """Create the map; it gets its weights from another module, and packs them once.

        Args:
            in_features: input width.
            out_features: output width.
            dtype: dtype of the outputs.
        """
        super().__init__()
        self.in_features, self.out_features, self.dtype = in_features, out_features, dtype
        self.weight: nn.Parameter | None
        self.bias: nn.Parameter | None
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        # A tensor: a Python number would be a constant of the graph, and each layer would need its
        # own graph.
        self.number = torch.tensor(next(_counted), device="cpu")
        _PLACES[int(self.number)] = self

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., I] to [..., O], in the dtype of the map."""
        if torch.compiler.is_compiling():
            y: Tensor = torch.ops.weft.packed_linear(x, self.number, self.out_features, self.dtype)
            return y
        return self.multiply(x)

    def multiply(self, x: Tensor) -> Tensor:
        """Run the product; pack the matrix before the first one."""
        if self._packed is None:
            self._packed = self.pack([self])
        return self.product(x, self._packed)

    def joined(self, x: Tensor, maps: tuple[Any, ...]) -> Sequence[Tensor]:
        """Run one product for several maps, whose matrices are packed together at the first one.

        For few rows it takes little longer than one of the maps.
        """
        if torch.compiler.is_compiling() or not self.joins(x):
            return tuple(linear(x) for linear in maps)
        packed_maps = self._joined
        if packed_maps is None or packed_maps[0] != maps:
            packed_maps = self._joined = maps, self.pack(maps)
        y = self.product(x, packed_maps[1])
        return y.split_with_sizes([linear.out_features for linear in maps], -1)

    def joins(self, x: Tensor) -> bool:  # noqa: ARG002 - subclasses read it
        """Return whether one product of several maps is faster for this input."""
        return True

    def repack(self) -> None:
        """Pack the matrix again before the next product, because the weights have changed.

        So must the maps joined with it.
        """
        self._packed, self._joined = None, None

    @abc.abstractmethod
    def pack(self, maps: Sequence[Any]) -> Any:
        """Return the matrices of maps of the same input, and their biases, for `product`."""

    @abc.abstractmethod
    def product(self, x: Tensor, packed: Any) -> Tensor:
        """Return the product of x [..., I] with what `pack` returned, [..., O]."""

    def extra_repr(self) -> str:
        """Return the sizes and the dtype for the printed module."""
        return f"{self.in_features}, {self.out_features}, {self.dtype}"


def weight_and_bias(maps: Sequence[InferenceLinear]) -> tuple[Tensor, Tensor | None]:
    """Return the weights of maps of the same input below each other, and their biases, if any."""
    weights = [linear.weight.detach() for linear in maps if linear.weight is not None]
    assert len(weights) == len(maps)  # noqa: S101 - set with the weights of the model
    weight_OI = weights[0] if len(weights) == 1 else torch.cat(weights)  # the largest is one map
    if all(linear.bias is None for linear in maps):
        return weight_OI, None
    biases = [
        weight_OI.new_zeros(linear.out_features) if linear.bias is None else linear.bias.detach()
        for linear in maps
    ]
    return weight_OI, torch.cat(biases)


class PackedLinear(InferenceLinear):
    """A linear map with a prepacked matrix, in the dtype of its outputs."""

    def multiply(self, x: Tensor) -> Tensor:
        """Run the product, of one row by MKL where that is faster."""
        if self._by_mkl(x):
            assert self.weight is not None  # noqa: S101 - set with the weights of the model
            return F.linear(x.float(), self.weight, self.bias)
        return super().multiply(x)

    def joins(self, x: Tensor) -> bool:
        """Return whether MKL, whose matrices are those of the single maps, is not used."""
        return not self._by_mkl(x)

    def _by_mkl(self, x: Tensor) -> bool:
        """Return whether MKL multiplies x faster than oneDNN, with a packed matrix or without."""
        one_row = x.numel() == self.in_features and self.dtype == torch.float32
        return one_row and one_row_by_mkl(torch.get_num_threads())

    def pack(self, maps: Sequence[InferenceLinear]) -> tuple[Tensor, Tensor | None]:
        """Return the prepacked matrix and the bias, at the cost of one product and a copy."""
        weight_OI, bias_O = weight_and_bias(maps)
        matrix = _ops()._reorder_linear_weight(weight_OI.to(self.dtype), None)  # noqa: SLF001
        return matrix, None if bias_O is None else bias_O.to(self.dtype)

    def product(self, x: Tensor, packed: tuple[Tensor, Tensor | None]) -> Tensor:
        """Run the prepacked product."""
        matrix, bias = packed
        rows = x.numel() // self.in_features
        padded = recurring(rows)
        if padded == rows:
            operand = x.to(self.dtype)
        else:
            operand = x.new_empty(padded, self.in_features, dtype=self.dtype)
            operand[:rows] = x.reshape(rows, self.in_features)
            operand[rows:] = 0.0
        y: Tensor = _ops()._linear_pointwise(operand, matrix, bias, "none", [], "")  # noqa: SLF001 - torch has no public API for it
        return y if padded == rows else y[:rows].view(*x.shape[:-1], y.size(-1))


@functools.cache
def one_row_by_mkl(threads: int) -> bool:
    """Return whether MKL multiplies one row in float32 faster than oneDNN, packed or not.

    It does with one thread and without AVX-512; it uses no further threads, and with several rows,
    oneDNN's packed product is faster for wide matrices (microseconds in docs/results.md).
    """
    return threads == 1 and torch.backends.mkl.is_available() and not processor.has("AVX-512")


def recurring(rows: int) -> int:
    """Return a number of rows from 1, 2, ..., 32, 34, 36, ..., 64, 68, ..., at least as large.

    oneDNN compiles a product for each number of rows, and the process keeps the code (decision
    0022).  With 16 numbers in each octave a product has at most a sixteenth more rows.
    """
    unit = 1 << max(0, (rows - 1).bit_length() - 5)
    return -(-rows // unit) * unit


def _by_place(x: Tensor, index: Tensor, _: int, dtype: torch.dtype) -> Tensor:  # noqa: ARG001
    return _PLACES[int(index)].multiply(x)


def _sized(x: Tensor, _: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    return x.new_empty((*x.shape[:-1], width), dtype=dtype)


_LIBRARY.impl("packed_linear", _by_place, "CPU")
torch.library.register_fake("weft::packed_linear", _sized, lib=_LIBRARY)


def prepack(model: nn.Module, dtype: torch.dtype) -> None:
    """Give the linear maps of a model under construction prepacked matrices.

    Maps with LoRA and maps of a subclass with another `forward` stay as they are.

    Args:
        model: the model; its weights are set afterwards.
        dtype: dtype of the products.
    """
    exchange_linear(
        model, lambda linear: PackedLinear(linear.in_features, linear.out_features, dtype)
    )


def exchange_linear(model: nn.Module, make: Callable[[nn.Linear], InferenceLinear | None]) -> None:
    """Exchange the plain linear maps of a model under construction; shared ones stay shared.

    Args:
        model: the model.
        make: returns the map in place of another one; None to keep that.
    """
    replacements: dict[nn.Module, nn.Module] = {}
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if path and is_plain(module):
            linear: Any = module
            if module not in replacements:
                replacements[module] = make(linear) or linear
            holder, _, name = path.rpartition(".")
            setattr(model.get_submodule(holder), name, replacements[module])


def is_plain(module: nn.Module) -> bool:
    """Return whether a module is a linear map and nothing else."""
    is_default = type(module).forward in (nn.Linear.forward, LinearMap.forward)
    return isinstance(module, nn.Linear) and is_default and getattr(module, "lora", None) is None


@functools.cache
def can_pack(dtype: torch.dtype) -> bool:
    """Return whether this torch can prepack on this processor, by testing a small matrix."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    with torch.random.fork_rng(devices=()):  # a model that trains draws the same afterwards
        linear, packed = nn.Linear(24, 40), PackedLinear(24, 40, dtype)
    for name, parameter in linear.named_parameters():
        packed.register_parameter(name, parameter)
    x = torch.linspace(-1, 1, 3 * 24).view(3, 24)
    with torch.no_grad():
        try:
            output = packed(x)
        except (AttributeError, RuntimeError):  # another torch version, or one without oneDNN
            return False
        expected = F.linear(x.to(dtype), linear.weight.to(dtype), linear.bias.to(dtype))
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    return output.dtype == dtype and bool((output - expected).abs().max() < tolerance)


def _ops() -> Any:
    return torch.ops.mkldnn


def select_outputs(module: nn.Module, ids_C: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Return the map from the input of a linear map to some of its outputs.

    Weights that change afterwards have no effect on it.

    Args:
        module: a plain linear map (`is_plain`), or one for inference.
        ids_C: the outputs; None for all, and the map is then the module itself.
    """
    if ids_C is None:
        return module
    projection: Any = module
    weight_CI = projection.weight.detach().index_select(0, ids_C)
    bias_C = None if projection.bias is None else projection.bias.detach().index_select(0, ids_C)
    if isinstance(module, InferenceLinear):
        smaller = type(module)(module.in_features, len(ids_C), module.dtype)
        smaller.weight = nn.Parameter(weight_CI, requires_grad=False)
        smaller.bias = None if bias_C is None else nn.Parameter(bias_C, requires_grad=False)
        return smaller
    kind = ids_C.device.type
    if torch.is_autocast_enabled(kind):  # cast once, not in every product
        weight_CI = weight_CI.to(torch.get_autocast_dtype(kind))
    return partial(linear, weight_OI=weight_CI, bias_O=bias_C, kernel=projection.product_kernel)
