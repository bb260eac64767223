"""Weft: compose sequence models from typed blocks.

    spec = weft.load("transformer-base", layers=4)   # a spec, with a param changed
    weft.check(spec)                                  # a list of all errors
    weft.draw(spec, "model.svg")                      # a picture; in notebooks, weft.draw(spec)
    weft.diff("transformer-base", spec).render()      # the changes, as text
    model = weft.build(spec)                          # a torch.nn.Module
    model(**weft.example_inputs(spec))                # a dict of outputs
    weft.prove(spec)                                  # decoding, padding, gradients: no fault?
    model = weft.build(weft.unpad(spec))              # trains on non-padding tokens only
    weft.compile(model)                               # torch.compile per template
    result = weft.train("multi30k-en-de", out="outputs/m30k")
    weft.open(result.averaged).translate(["A dog runs."])
    weft.Study("study-demo").plan().rows              # an ablation: every row checked and costed
    weft.import_hf("bert-base-uncased", "bert").save("outputs/bert")
    weft.export(result.averaged, "ctranslate2", "outputs/m30k/ct2", quantization="int8")

Each name is imported from its own module when it is first used (PEP 562): `load`, `check`, `draw`
and `diff` never import torch.  `docs/api.md` describes every name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .blocks.kernels.decode_state import Capacity as Capacity
    from .blocks.kernels.decode_state import State as State
    from .blocks.params import Params as Params
    from .extensions.interop.export.ctranslate2.export import Checked as Checked
    from .extensions.interop.export.eject.eject import Ejected as Ejected
    from .extensions.interop.export.eject.eject import eject as eject
    from .extensions.interop.export.export import export as export
    from .extensions.interop.export.huggingface.adapter import CheckedAdapter as CheckedAdapter
    from .extensions.interop.export.huggingface.export import (
        CheckedHuggingFace as CheckedHuggingFace,
    )
    from .extensions.interop.export.huggingface.fit import Fit as Fit
    from .extensions.interop.export.huggingface.fit import fits as fits
    from .extensions.interop.export.onnx.export import CheckedOnnx as CheckedOnnx
    from .extensions.interop.importing.hf import Imported as Imported
    from .extensions.interop.importing.hf import import_hf as import_hf
    from .extensions.parsing.decode.parse import Parse as Parse
    from .extensions.study.comparing.compare import Comparison as Comparison
    from .extensions.study.distilling import Distilled as Distilled
    from .extensions.study.distilling import distill as distill
    from .extensions.study.records import StudyJob as StudyJob
    from .extensions.study.records import StudyPlan as StudyPlan
    from .extensions.study.records import StudyReport as StudyReport
    from .extensions.study.records import StudyRow as StudyRow
    from .extensions.study.records import StudyScore as StudyScore
    from .extensions.study.records import StudySearch as StudySearch
    from .extensions.study.searching.trials import StudyTrial as StudyTrial
    from .extensions.study.study import Study as Study
    from .graphs.ir.block_type import BlockType as BlockType
    from .graphs.ir.block_type import Port as Port
    from .graphs.ir.block_type import Signature as Signature
    from .graphs.ir.block_type import Slot as Slot
    from .graphs.ir.block_type import port as port
    from .graphs.ir.execution import UnpadPlan as UnpadPlan
    from .graphs.ir.graph import Graph as Graph
    from .graphs.ir.state_tensor import StateTensor as StateTensor
    from .runtime.analysis.alignment import Alignment as Alignment
    from .runtime.analysis.attention_weights import AttentionMaps as AttentionMaps
    from .runtime.api import train as train
    from .runtime.codegen.build import build as build
    from .runtime.codegen.examples import example_inputs as example_inputs
    from .runtime.compile.torch_compile import CompileReport as CompileReport
    from .runtime.compile.torch_compile import compile_model as compile  # noqa: A004
    from .runtime.decode.decode import SpecialTokens as SpecialTokens
    from .runtime.decode.generate import Continuation as Continuation
    from .runtime.decode.score import Scored as Scored
    from .runtime.decode.settings import Hypothesis as Hypothesis
    from .runtime.decode.translate import TranslationRequest as TranslationRequest
    from .runtime.model.model import Adapted as Adapted
    from .runtime.model.model import Model as Model
    from .runtime.model.opening import open_folder as open  # noqa: A004
    from .runtime.prove.prove import prove as prove
    from .runtime.prove.report import Proof as Proof
    from .runtime.spec.check import check as check
    from .runtime.spec.findings import Findings as Findings
    from .runtime.spec.passes import cast_weights as cast_weights
    from .runtime.spec.passes import checkpoint_activations as checkpoint_activations
    from .runtime.spec.passes import fuse_losses as fuse_losses
    from .runtime.spec.passes import unpad as unpad
    from .runtime.spec.spec import Spec as Spec
    from .runtime.spec.spec import load as load
    from .runtime.spec.views import Diff as Diff
    from .runtime.spec.views import Drawing as Drawing
    from .runtime.spec.views import diff as diff
    from .runtime.spec.views import draw as draw
    from .runtime.train.context import Listener as Listener
    from .runtime.train.context import Progress as Progress
    from .runtime.train.context import Result as Result
    from .runtime.train.run import Run as Run
    from .specs.findings import Finding as Finding
    from .specs.findings import InputError as InputError
    from .specs.findings import SpecError as SpecError
    from .specs.findings import WeftError as WeftError

    __version__: str

__all__ = [
    "Adapted",
    "Alignment",
    "AttentionMaps",
    "BlockType",
    "Capacity",
    "Checked",
    "CheckedAdapter",
    "CheckedHuggingFace",
    "CheckedOnnx",
    "Comparison",
    "CompileReport",
    "Continuation",
    "Diff",
    "Distilled",
    "Drawing",
    "Ejected",
    "Finding",
    "Findings",
    "Fit",
    "Graph",
    "Hypothesis",
    "Imported",
    "InputError",
    "Listener",
    "Model",
    "Params",
    "Parse",
    "Port",
    "Progress",
    "Proof",
    "Result",
    "Run",
    "Scored",
    "Signature",
    "Slot",
    "Spec",
    "SpecError",
    "SpecialTokens",
    "State",
    "StateTensor",
    "Study",
    "StudyJob",
    "StudyPlan",
    "StudyReport",
    "StudyRow",
    "StudyScore",
    "StudySearch",
    "StudyTrial",
    "TranslationRequest",
    "UnpadPlan",
    "WeftError",
    "__version__",
    "build",
    "cast_weights",
    "check",
    "checkpoint_activations",
    "compile",
    "diff",
    "distill",
    "draw",
    "eject",
    "example_inputs",
    "export",
    "fits",
    "fuse_losses",
    "import_hf",
    "load",
    "open",
    "port",
    "prove",
    "train",
    "unpad",
]

_HOMES = {
    "Adapted": "runtime.model.model",
    "Alignment": "runtime.analysis.alignment",
    "AttentionMaps": "runtime.analysis.attention_weights",
    "BlockType": "graphs.ir.block_type",
    "Capacity": "blocks.kernels.decode_state",
    "Checked": "extensions.interop.export.ctranslate2.export",
    "CheckedAdapter": "extensions.interop.export.huggingface.adapter",
    "CheckedHuggingFace": "extensions.interop.export.huggingface.export",
    "CheckedOnnx": "extensions.interop.export.onnx.export",
    "Comparison": "extensions.study.comparing.compare",
    "CompileReport": "runtime.compile.torch_compile",
    "Continuation": "runtime.decode.generate",
    "Diff": "runtime.spec.views",
    "Distilled": "extensions.study.distilling",
    "Drawing": "runtime.spec.views",
    "Ejected": "extensions.interop.export.eject.eject",
    "Finding": "specs.findings",
    "Findings": "runtime.spec.findings",
    "Fit": "extensions.interop.export.huggingface.fit",
    "Graph": "graphs.ir.graph",
    "Hypothesis": "runtime.decode.settings",
    "Imported": "extensions.interop.importing.hf",
    "InputError": "specs.findings",
    "Listener": "runtime.train.context",
    "Model": "runtime.model.model",
    "Params": "blocks.params",
    "Parse": "extensions.parsing.decode.parse",
    "Port": "graphs.ir.block_type",
    "Progress": "runtime.train.context",
    "Proof": "runtime.prove.report",
    "Result": "runtime.train.context",
    "Run": "runtime.train.run",
    "Scored": "runtime.decode.score",
    "Signature": "graphs.ir.block_type",
    "Slot": "graphs.ir.block_type",
    "Spec": "runtime.spec.spec",
    "SpecError": "specs.findings",
    "SpecialTokens": "runtime.decode.decode",
    "State": "blocks.kernels.decode_state",
    "StateTensor": "graphs.ir.state_tensor",
    "Study": "extensions.study.study",
    "StudyJob": "extensions.study.records",
    "StudyPlan": "extensions.study.records",
    "StudyReport": "extensions.study.records",
    "StudyRow": "extensions.study.records",
    "StudyScore": "extensions.study.records",
    "StudySearch": "extensions.study.records",
    "StudyTrial": "extensions.study.searching.trials",
    "TranslationRequest": "runtime.decode.translate",
    "UnpadPlan": "graphs.ir.execution",
    "WeftError": "specs.findings",
    "build": "runtime.codegen.build",
    "check": "runtime.spec.check",
    "cast_weights": "runtime.spec.passes",
    "checkpoint_activations": "runtime.spec.passes",
    "compile": "runtime.compile.torch_compile:compile_model",
    "diff": "runtime.spec.views",
    "distill": "extensions.study.distilling",
    "draw": "runtime.spec.views",
    "eject": "extensions.interop.export.eject.eject",
    "example_inputs": "runtime.codegen.examples",
    "export": "extensions.interop.export.export",
    "fits": "extensions.interop.export.huggingface.fit",
    "fuse_losses": "runtime.spec.passes",
    "import_hf": "extensions.interop.importing.hf",
    "load": "runtime.spec.spec",
    "open": "runtime.model.opening:open_folder",
    "port": "graphs.ir.block_type",
    "prove": "runtime.prove.prove",
    "train": "runtime.api",
    "unpad": "runtime.spec.passes",
}
"""Public name to the module that defines it, and to its name there if that differs."""


if not TYPE_CHECKING:  # type checkers read the imports above, and report unknown names

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        import importlib

        if name == "__version__":
            from importlib.metadata import version

            value: object = version("weft")
        elif name in _HOMES:
            module, _, inner = _HOMES[name].partition(":")
            value = getattr(importlib.import_module(f".{module}", __name__), inner or name)
        else:
            msg = f"module 'weft' has no attribute '{name}'"
            raise AttributeError(msg)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Return the public names, whether or not they have been used."""
        return sorted({*globals(), *__all__})
