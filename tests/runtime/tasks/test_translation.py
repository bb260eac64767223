"""Translation task: inputs are shifted right, and graphs that do not fit raise errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.runtime import api
from weft.runtime.data.batches import Batch
from weft.runtime.metrics.text import score
from weft.runtime.spec.check import graph_of
from weft.runtime.tasks.registry import make_task
from weft.runtime.tasks.translation import check_graph
from weft.runtime.train.run import Run
from weft.specs.findings import InputError
from weft.specs.load import load, loaded


def tiny() -> Graph:
    """Return a shipped spec for the task."""
    return check(load("transformer-tiny").form, registry())


@pytest.fixture
def prepared(toy_run: Callable[..., Run], tmp_path: Path) -> Any:
    """Return the prepared toy corpus."""
    return api.prepare_run(toy_run(), tmp_path / "run")


def test_the_target_is_shifted_right(toy_run: Callable[..., Run], prepared: Any) -> None:
    """The model reads BOS and all tokens except the last, and predicts all tokens except BOS."""
    batch = Batch(
        source=torch.tensor([[5, 6, 1, 0]]), target=torch.tensor([[7, 8, 1]]), rows=None, pad=0
    )  # type: ignore[arg-type]

    inputs = make_task(toy_run(), prepared, tiny()).inputs(batch)

    bos = prepared.target_tokenizer.bos
    assert inputs["target"].tolist() == [[bos, 7, 8]]
    assert inputs["source_mask"].tolist() == [[True, True, True, False]]


def test_perplexity_of_a_uniform_model_is_the_vocabulary(
    toy_run: Callable[..., Run], prepared: Any
) -> None:
    """Equal logits give probability 1/V to each token, so perplexity V for any text."""
    task = replace(make_task(toy_run(), prepared, tiny()), head=None)
    vocabulary = prepared.target_tokenizer.vocab_size

    class Uniform(torch.nn.Module):
        def forward(self, target: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
            return {"logits": torch.zeros(*target.shape, vocabulary)}

    batches = task.text_batches(["sun moon", "tree", ""], ["moon sun", "tree", "x"])
    values = task.perplexity(Uniform(), batches, torch.device("cpu"))

    assert values["perplexity"] == pytest.approx(vocabulary, rel=1e-6)
    assert values["nll"] == pytest.approx(math.log(vocabulary), rel=1e-6)


def test_a_tokenizer_of_another_size_is_refused(prepared: Any) -> None:
    """The message has both sizes and a fix."""
    graph = graph_of(load("transformer-tiny", {"vocab": 41}))

    with pytest.raises(InputError, match="has size 41, but the tokenizer has 40") as caught:
        check_graph(graph, prepared.source_tokenizer, prepared.target_tokenizer)
    assert "remove 'vocab'" in caught.value.help


def test_a_spec_without_the_task_s_inputs_is_refused(prepared: Any) -> None:
    """A valid spec with other inputs gets an error that names the missing input."""
    graph = graph_of(
        loaded(
            {
                "format": 2,
                "name": "other",
                "axes": {"B": "batch"},
                "inputs": {"x": "f[B 4]"},
                "outputs": {"y": "map.y"},
                "nodes": {"map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 3}}},
            }
        )
    )

    with pytest.raises(InputError, match="needs an input 'source' of kind ids"):
        check_graph(graph, prepared.source_tokenizer, prepared.target_tokenizer)


def test_scores_are_sacrebleu_s_own() -> None:
    """Identical text scores 100; case is counted in one score and ignored in the other."""
    references = ["Ein Hund läuft durch den Schnee .", "Zwei Kinder spielen im Park ."]
    lowered = [line.lower() for line in references]

    scores = score(lowered, references)

    assert scores.values["bleu_lc"] == pytest.approx(100.0)
    assert scores.values["bleu"] == pytest.approx(
        sacrebleu.corpus_bleu(lowered, [references]).score
    )
    assert scores.values["bleu"] < 100.0
    assert "case:lc" in scores.signatures["bleu_lc"]
