"""Predictors of text: search, sampling and mask-predict for encoder-decoders, and generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from ....specs.findings import InputError
from ..settings import (
    Avoiding,
    BeamSearch,
    DraftSettings,
    GenerateSettings,
    MaskFields,
    Risk,
    RiskSearch,
    Sampling,
    Writing,
    risk_of,
)
from .predictor import Context, Predictor, PredictorSettings, Reads

if TYPE_CHECKING:
    from .text import TextPredictor


def text_predictor(
    context: Context,
    search: BeamSearch | Sampling,
    prefix: str | None = None,
    include: str | None = None,
    drafts: Sequence[DraftSettings] = (),
    *,
    risk: Risk | None = None,
) -> TextPredictor:
    """Return the predictor of a model that writes text token by token.

    Args:
        context: models and columns.
        search: the search.
        prefix: column with the text that each output begins with.
        include: column with the phrases that each output contains.
        drafts: inputs of the models that are written before, in this order.
        risk: how outputs are chosen by minimum Bayes risk.

    Raises:
        InputError: columns cannot fill the inputs, the answers have no vocabulary, or a column does
            not exist.
    """
    from .feeding import Sources
    from .text import TextPredictor

    for name in filter(None, (prefix, include)):
        context.column(name)
    sources = Sources.of(context, drafts=drafts)
    return TextPredictor.of(context, sources, search, prefix=prefix, include=include, risk=risk)


class _Text(PredictorSettings, Writing):
    """Settings of a predictor that writes texts token by token."""

    reads: ClassVar[Reads] = "fixed"
    command: ClassVar[str] = "translate"

    prefix: str | None = None
    """Column with the text that each output begins with, such as a prompt; `null` for none."""
    include: str | None = None
    """Column with phrases that each output contains, separated by tabs; `null` for none."""
    drafts: tuple[DraftSettings, ...] = ()
    """Inputs of the model that are written before the answer, such as
    `[{"input": "draft", "output": "draft_logits", "beam": 2}]`: the output has the logits, and
    other settings are those of beams."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        return text_predictor(
            context, self.search(), self.prefix, self.include, self.drafts, risk=risk_of(self)
        )


class Beam(_Text, BeamSearch):
    """Beam search."""

    type: Literal["beam"] = "beam"


class Greedy(_Text, Avoiding):
    """Greedy search: the most probable token at each step."""

    type: Literal["greedy"] = "greedy"

    def search(self) -> BeamSearch:
        """Return a beam search with one hypothesis."""
        others = {"type", "prefix", "include", "drafts"}
        return BeamSearch(beam=1, **self.model_dump(exclude=others))


class Sample(_Text, Sampling):
    """Sampling; the answer is the most probable of `samples` texts."""

    type: Literal["sample"] = "sample"


class Mbr(_Text, RiskSearch):
    """Minimum Bayes risk: the output that a metric expects to be best, among samples or beams."""

    type: Literal["mbr"] = "mbr"


class MaskPredict(PredictorSettings, MaskFields):
    """Mask-predict: all tokens at once, then the least probable ones again."""

    reads: ClassVar[Reads] = "fixed"
    command: ClassVar[str] = "translate"

    type: Literal["mask_predict"] = "mask_predict"

    def make(self, context: Context) -> TextPredictor:
        """Return the predictor."""
        from .feeding import Sources
        from .mask_predict import MaskPredictor

        context.one_model(self.type)
        sources = Sources.of(context, steps=False)
        if not sources.written_masks or "lengths" not in context.graph.outputs:
            raise InputError(
                "mask-predict needs a mask of the ids that it writes, and an output 'lengths'",
                location=context.graph.source,
                help="use the predictor 'beam' for a model that decodes step by step",
            )
        search = BeamSearch()  # its settings have no effect
        return MaskPredictor.of(context, sources, search, masks=self)


class Generate(PredictorSettings, GenerateSettings):
    """Continuation of a prefix by a decoder-only model: by beams, greedily or by sampling."""

    reads: ClassVar[Reads] = "fixed"
    command: ClassVar[str] = "generate"

    type: Literal["generate"] = "generate"
    prefix: str | None = None
    """Column with the text that is continued; `null` continues an empty text."""
    include: str | None = None
    """Column with phrases that each continuation contains, separated by tabs; `null` for none."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from .continuing import Continuing

        context.one_model(self.type)
        for name in filter(None, (self.prefix, self.include)):
            context.column(name)
        return Continuing.of(context, self, self.prefix, self.include)
