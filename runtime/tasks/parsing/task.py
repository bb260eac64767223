"""Sequence parsing task: an encoder-decoder maps words to the symbols of a tree.

A spec for this task has the inputs and outputs of translation; the target is the sequence
of symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from ...data.prepare import Prepared
from ...data.treebank.reader import read_bank
from ...data.treebank.settings import ParsingSettings
from ...decode.parsing.parse import Parser
from ...decode.parsing.sequence_parser import SequenceParser
from ...decode.settings import SearchSettings
from ...metrics.parsing import measure, trees_of
from ...train.device import Place
from ...train.run import Run
from ..translation import Translation


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsing(Translation):
    """Sequence parsing task."""

    parses: ClassVar[bool] = True

    parsing: ParsingSettings

    def parser(
        self,
        model: nn.Module,
        search: SearchSettings,
        *,
        half: bool = False,
        others: tuple[nn.Module, ...] = (),
    ) -> Parser:
        """Return a parser that averages the probabilities of the model and `others`."""
        models = (model, *others)
        return SequenceParser(models, self.source, self.target, self.parsing, search, half)

    def validator(
        self, prepared: Prepared, run: Run, place: Place
    ) -> Callable[[nn.Module], dict[str, Any]]:
        """Return a function that validates the model: nll, and F1 if requested."""
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
