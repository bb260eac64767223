"""Tests that the WMT14 runs have the settings of the paper.

Source: Vaswani et al. 2017, sections 5 and 6.1, https://arxiv.org/abs/1706.03762
"""

from __future__ import annotations

import json

import pytest
from weft.graphs.passes.objective import deployed_graph
from weft.runtime.train.objective import Objective
from weft.runtime.train.plan import load_run
from weft.runtime.train.recipe.schedule import of_paper, peak_of
from weft.runtime.train.run import Run
from weft.specs.reader import find

BASE = {"d_model": 512, "layers": 6, "heads": 8, "d_ff": 2048}
BIG = {"d_model": 1024, "layers": 6, "heads": 16, "d_ff": 4096}
RUNS = {
    # dropout, updates, checkpoints averaged, seconds per update in the paper, vocabulary
    "wmt14-en-de-base": (BASE, 0.1, 100_000, 5, 0.4, 37_000),
    "wmt14-en-de-big": (BIG, 0.3, 300_000, 20, 1.0, 37_000),
    "wmt14-en-fr-base": (BASE, 0.1, 100_000, 5, 0.4, 32_000),
    "wmt14-en-fr-big": (BIG, 0.1, 300_000, 20, 1.0, 32_000),
}


@pytest.fixture(params=RUNS)
def loaded(request: pytest.FixtureRequest) -> tuple[Run, str]:
    """Return a run and the path of its file."""
    return load_run(request.param)


def test_settings_are_those_of_the_paper(loaded: tuple[Run, str]) -> None:
    """The hyperparameters are those of sections 5.3, 5.4 and 6.1."""
    run, source = loaded
    sizes, dropout, updates, averaged, seconds, vocabulary = RUNS[run.name]
    graph = Objective.of(run, source).graph
    params = deployed_graph(graph).params
    [tokenizer], search = run.tokenizers.values(), run.predict

    assert {name: params[name] for name in sizes} == sizes
    assert params["dropout"] == dropout
    assert params["vocab"] == tokenizer.vocab_size == vocabulary
    assert run.updates == updates
    assert (run.optimizer.type, run.optimizer.betas, run.optimizer.eps) == (
        "adam",
        (0.9, 0.98),
        1e-9,
    )
    assert run.optimizer.clip is None
    assert run.schedule == of_paper()
    assert (graph.params["label_smoothing"], graph.params["spread"]) == (0.1, "others")
    assert run.checkpoint.average == averaged <= run.checkpoint.keep
    assert run.checkpoint.every * seconds == 600  # ten minutes
    assert (search.beam, search.alpha, search.penalty) == (4, 0.6, "gnmt")
    assert (search.max_factor, search.max_extra) == (1.0, 50)
    # About 25,000 tokens per side, a tenth of it padding; one batch for each of 8 devices.
    assert run.accumulate == 8
    assert run.accumulate * run.batch.tokens * 0.9 == pytest.approx(25_000, rel=0.01)
    peak = peak_of(run.schedule, {"d_model": sizes["d_model"]})
    assert peak == pytest.approx(6.99e-4 if sizes is BASE else 4.94e-4, rel=1e-3)


def test_no_character_is_unknown(loaded: tuple[Run, str]) -> None:
    """Characters outside the vocabulary are encoded as bytes."""
    assert loaded[0].tokenizers["tokenizer"].byte_fallback


def test_shipped_runs_set_every_relevant_setting(loaded: tuple[Run, str]) -> None:
    """Settings that affect the result are in the file, so a new default does not change a run."""
    written = json.loads(find(loaded[0].name, "runs").read_text())

    deciding = (
        "objective params data tokenizers batch accumulate updates optimizer schedule"
        " precision evaluate checkpoint predict seed"
    )
    assert set(deciding.split()) <= written.keys()
    assert {"duplicates", "max_length", "max_ratio"} <= written["data"]["filter"].keys()
    assert {"label_smoothing", "spread"} <= written["params"].keys()


def test_text_is_named_for_both_sides(loaded: tuple[Run, str]) -> None:
    """The runs train on the training set, validate on newstest2013 and test on newstest2014."""
    data = loaded[0].data

    assert data.test.keys() == {"newstest2014"}
    for split in data.sources().values():
        assert split.reader in ("lines", "mtdata")
    assert "2013" in str(data.valid)
    assert "2014" in str(data.test["newstest2014"])
