"""Parsing as a task: words to a tree, by an encoder-decoder.

A spec serves it when it has the inputs and outputs of translation: the target are the
symbols of the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ...data.prepare import Prepared
from ...data.treebank.reader import read_bank
from ...data.treebank.settings import ParsingSettings
from ...decode.settings import SearchSettings
from ...train.device import Place
from ...train.run import Run
from ..translation import Translation
from .measure import measure, trees_of
from .parse import Parser, SequenceParser


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsing(Translation):
    """The task, as the training loop sees it."""

    parsing: ParsingSettings

    def parser(
        self,
        model: nn.Module,
        search: SearchSettings,
        *,
        half: bool = False,
        others: tuple[nn.Module, ...] = (),
    ) -> Parser:
        """Return the model as a parser; with others their probabilities are averaged."""
        models = (model, *others)
        return SequenceParser(models, self.source, self.target, self.parsing, search, half)

    def validator(
        self, prepared: Prepared, run: Run, place: Place
    ) -> Callable[[nn.Module], dict[str, Any]]:
        """Return what measures the model while it is trained: nll, and F1 where asked for."""
        watch = run.evaluate
        search = run.search.model_copy(update={"beam": watch.beam, "nbest": 1})
        bank = read_bank(prepared.data.valid, prepared.data.root, self.parsing)
        gold = trees_of(bank)[: watch.sentences]

        def validate(model: nn.Module) -> dict[str, Any]:
            batches = self.batches(prepared.valid, run.batch)
            values: dict[str, Any] = self.perplexity(model, batches, place.device)
            if watch.bleu or run.best == "f1":
                found = measure(self.parser(model, search, half=place.half), gold)
                total = found.scores.all
                values |= {
                    "f1": total.f1,
                    "recall": total.recall,
                    "precision": total.precision,
                    "errors": total.errors,
                    "malformed": found.malformed,
                    "repairs": found.repairs.total,
                }
            return values

        return validate
