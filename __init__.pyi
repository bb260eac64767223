"""Every public name of Weft, with its home; `__init__.py` reads this file too."""

from .blocks.kernels.decode_state import Capacity as Capacity
from .blocks.kernels.decode_state import State as State
from .blocks.params import Params as Params
from .extensions.interop.export.automodel.export import CheckedAutoModel as CheckedAutoModel
from .extensions.interop.export.ctranslate2 import Checked as Checked
from .extensions.interop.export.eject import Ejected as Ejected
from .extensions.interop.export.eject import eject as eject
from .extensions.interop.export.huggingface.adapter import CheckedAdapter as CheckedAdapter
from .extensions.interop.export.huggingface.export import (
    CheckedHuggingFace as CheckedHuggingFace,
)
from .extensions.interop.export.huggingface.fit import Fit as Fit
from .extensions.interop.export.huggingface.fit import fits as fits
from .extensions.interop.export.onnx import CheckedOnnx as CheckedOnnx
from .extensions.interop.hub import Pulled as Pulled
from .extensions.interop.hub import Pushed as Pushed
from .extensions.interop.hub import pull as pull
from .extensions.interop.hub import push as push
from .extensions.interop.importing.hf import Imported as Imported
from .extensions.interop.importing.hf import import_hf as import_hf
from .extensions.parsing.decode.parse import Parse as Parse
from .extensions.study.comparison import Comparison as Comparison
from .extensions.study.records import StudyJob as StudyJob
from .extensions.study.records import StudyPlan as StudyPlan
from .extensions.study.records import StudyReport as StudyReport
from .extensions.study.records import StudyRow as StudyRow
from .extensions.study.records import StudyScore as StudyScore
from .extensions.study.records import StudySearch as StudySearch
from .extensions.study.study import Study as Study
from .extensions.study.synthesis import Synthetic as Synthetic
from .extensions.study.synthesis import synthesize as synthesize
from .extensions.study.trials import StudyTrial as StudyTrial
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
from .runtime.checkpoint.exporter import export as export
from .runtime.codegen.build import build as build
from .runtime.codegen.examples import example_inputs as example_inputs
from .runtime.compile.torch_compile import CompileReport as CompileReport
from .runtime.compile.torch_compile import compile as compile  # noqa: A004
from .runtime.decode.decode import SpecialTokens as SpecialTokens
from .runtime.decode.score import Scored as Scored
from .runtime.decode.settings import Hypothesis as Hypothesis
from .runtime.model.model import Adapted as Adapted
from .runtime.model.model import Model as Model
from .runtime.model.opening import open as open  # noqa: A004
from .runtime.prove.coordinates import Coordinates as Coordinates
from .runtime.prove.coordinates import coordinates as coordinates
from .runtime.prove.prove import prove as prove
from .runtime.prove.report import Proof as Proof
from .runtime.scaffold.packages import new_package as new_package
from .runtime.scaffold.packages import new_spec as new_spec
from .runtime.scaffold.runs import NewRun as NewRun
from .runtime.scaffold.runs import new_run as new_run
from .runtime.spec.check import Findings as Findings
from .runtime.spec.check import check as check
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
