"""Upgrade of runs of format 2, which named a task, to runs of format 3, which name an objective.

The expected runs are written by hand.  Each is also read as a run, and no upgrade may change its
argument.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from weft.runtime.train.loading import run_of
from weft.runtime.train.run import Run
from weft.specs.findings import SpecError
from weft.specs.format_2 import upgrade_run

Value = dict[str, Any]

PAIR = {"source": ["a.en"], "target": ["a.de"]}
LINES = {"lines": PAIR}
TEXT = {"type": "text", "tokenizer": "tokenizer"}
SHORT: Value = {
    "format": 2,
    "name": "short",
    "spec": "transformer-tiny",
    "data": {"train": PAIR, "valid": PAIR},
    "tokenizer": {"vocab_size": 100},
}
"""A translation with nothing but what every run needs."""
BANK = {"trees": ["a.trees"]}
TREES: Value = {**SHORT, "task": "parsing", "data": {"train": BANK, "valid": BANK}}
SYMBOLS = {"type": "symbols"}
BRACKETS = {"type": "symbols", "spelling": "source", "only": "brackets"}
TEXTS = {
    "source": {"type": "text", "tokenizer": "source"},
    "target": {"type": "text", "tokenizer": "target"},
}

FILES = {
    "source": [],
    "target": [],
    "trees": [],
    "weights": None,
    "mtdata": [],
    "languages": None,
    "digests": {},
}
PARSING = {
    "decoder": "sequence",
    "linearization": "vinyals",
    "clean": True,
    "malformed": "refuse",
    "constrained": True,
}
SEARCH = {
    "beam": 4,
    "penalty": "gnmt",
    "alpha": 0.6,
    "ends": "any",
    "max_factor": 1.0,
    "max_extra": 50,
    "max_length": None,
    "min_length": 0,
    "nbest": 1,
    "groups": 1,
    "diversity": 0.5,
    "no_repeat": 0,
    "repetition_penalty": 1.0,
    "avoid": [],
    "iterations": 10,
    "lengths": 5,
    "sample": None,
}
SAMPLE = {"temperature": 0.7, "top_k": 5, "top_p": 1.0, "min_p": 0.0, "seed": 3}
TOKENIZER = {
    "type": "bpe",
    "vocab_size": 100,
    "byte_fallback": False,
    "user_symbols": [],
    "character_coverage": 1.0,
    "lowercase": False,
    "sentences": 1_000_000,
}
"""Settings of pieces that both formats have."""
EVALUATE = {
    "every": 1000,
    "patience": None,
    "bleu": True,
    "beam": 1,
    "sentences": None,
    "best": None,
    "lowercase": False,
}
STORED: Value = {
    "name": "stored",
    "doc": "",
    "start": None,
    "batch": {"tokens": 1024, "max_sentences": None, "pool": 1000},
    "accumulate": 4,
    "dropout_from": 0,
    "updates": 100_000,
    "precision": "auto",
    "compile": "auto",
    "kernels": {"product": "auto", "attention": "auto"},
    "device": "auto",
    "padding": "auto",
    "activation_checkpointing": [],
    "threads": None,
    "evaluate": EVALUATE,
    "checkpoint": {"every": 1000, "seconds": 600.0, "keep": 5, "average": 5, "sharded": False},
    "seed": 1,
    "format": 2,
    "task": "translation",
    "parsing": PARSING,
    "spec": "transformer-tiny",
    "params": {},
    "data": {
        "root": "data",
        "train": {**FILES, **PAIR},
        "valid": {**FILES, **PAIR},
        "test": {"flickr": {**FILES, **PAIR}},
        "filter": {"max_length": 250, "max_ratio": None, "duplicates": "keep"},
    },
    "tokenizer": {**TOKENIZER, "shared": True, "target": None},
    "loss": {"smoothing": 0.1, "spread": "vocabulary", "auxiliary": 0.01},
    "search": SEARCH,
}
"""A `run.json` of a checkpoint, in which every default is written out."""
STORED_TREES: Value = {
    **STORED,
    "task": "parsing",
    "data": {
        "root": "data",
        "train": {**FILES, **BANK},
        "valid": {**FILES, **BANK},
        "test": {},
        "filter": {"max_length": 250, "max_ratio": None, "duplicates": "keep"},
    },
}
STORED_BANK = {
    "files": ["a.trees"],
    "linearization": "vinyals",
    "clean": True,
    "malformed": "refuse",
}


def upgraded(value: Value) -> tuple[Value, Run]:
    """Return a run in format 3 as written and as it is read, and check that it is valid."""
    before = copy.deepcopy(value)
    made = {**upgrade_run(value), "format": 3}
    assert value == before
    return made, run_of(made, "run.json")


def parts(value: Value, *keys: str) -> Value:
    """Return some keys of an upgraded run."""
    made, _ = upgraded(value)
    return {key: made[key] for key in keys}


def test_a_short_translation_has_the_defaults_of_format_2() -> None:
    """Format 2 dropped pairs of more than 250 tokens, and validated BLEU greedily."""
    made, run = upgraded(SHORT)

    assert made == {
        "format": 3,
        "name": "short",
        "objective": "translation",
        "params": {"model": {"spec": "transformer-tiny"}},
        "data": {
            "columns": {"source": TEXT, "target": TEXT},
            "train": LINES,
            "valid": LINES,
            "filter": {"max_length": 250},
        },
        "tokenizers": {"tokenizer": {"type": "bpe", "vocab_size": 100}},
        "predict": {"type": "beam"},
        "answers": "target",
        "evaluate": {
            "best": "bleu",
            "metrics": ["bleu", "bleu_lc", "chrf", "perplexity"],
            "predict": {"beam": 1},
        },
    }
    assert (run.best, run.best_is_higher) == ("bleu", True)
    assert run.predict_in_validations is not None
    assert run.predict_in_validations.model_dump()["beam"] == 1


def test_every_key_of_a_translation_has_a_place() -> None:
    """Named corpora, weights, other tokenizers, and settings that both formats have."""
    corpora = {
        "mtdata": ["Statmt-newstest-2014-deu-eng"],
        "languages": ["eng", "deu"],
        "digests": {"Statmt-newstest-2014-deu-eng": "ab"},
    }
    weighted = {"source": ["a.en", "b.en"], "target": ["a.de", "b.de"], "weights": [1, 0.5]}
    value = {
        "format": 2,
        "name": "long",
        "doc": "Everything.",
        "task": "translation",
        "spec": "mine.json",
        "params": {"layers": 2},
        "start": "outputs/old/best",
        "data": {
            "root": "texts",
            "train": weighted,
            "valid": corpora,
            "test": {"flickr": PAIR},
            "filter": {"max_ratio": 3.0, "duplicates": "drop"},
        },
        "tokenizer": {"type": "unigram", "vocab_size": 90, "shared": False, "lowercase": True},
        "loss": {"smoothing": 0.2, "spread": "others", "auxiliary": 0.5},
        "evaluate": {
            "every": 50,
            "patience": 3,
            "beam": 2,
            "sentences": 40,
            "lowercase": True,
            "best": "nll",
        },
        "search": {"beam": 6, "alpha": 1.0, "nbest": 3, "avoid": ["a"], "max_length": 70},
        "batch": {"tokens": 200},
        "updates": 70,
        "optimizer": {"type": "sgd"},
        "schedule": {"type": "constant", "rate": 0.1},
        "activation_checkpointing": ["encoder.*", "head"],
        "padding": "padded",
        "parallel": {"data": "fsdp"},
        "checkpoint": {"every": 10},
        "seed": 7,
    }

    made, _ = upgraded(value)

    pieces = {"type": "unigram", "vocab_size": 90, "lowercase": True}
    assert made == {
        "format": 3,
        "name": "long",
        "doc": "Everything.",
        "objective": "translation",
        "params": {
            "model": {"spec": "mine.json", "params": {"layers": 2}},
            "label_smoothing": 0.2,
            "spread": "others",
        },
        "auxiliary": 0.5,
        "start": "outputs/old/best",
        "data": {
            "root": "texts",
            "columns": TEXTS,
            "train": {
                "lines": {"source": ["a.en", "b.en"], "target": ["a.de", "b.de"]},
                "weights": [1, 0.5],
            },
            "valid": {
                "mtdata": {
                    "names": ["Statmt-newstest-2014-deu-eng"],
                    "languages": ["eng", "deu"],
                    "digests": {"Statmt-newstest-2014-deu-eng": "ab"},
                }
            },
            "test": {"flickr": LINES},
            # A pair that did not fit into a batch was refused, so 199 tokens and the end.
            "filter": {"max_length": 199, "max_ratio": 3.0, "duplicates": "drop"},
        },
        "tokenizers": {"source": pieces, "target": pieces},
        "predict": {
            "type": "beam",
            "beam": 6,
            "alpha": 1.0,
            "nbest": 3,
            "avoid": ["a"],
            "max_length": 70,
        },
        "answers": "target",
        "evaluate": {
            "every": 50,
            "patience": 3,
            "best": "nll",
            "metrics": ["bleu_lc", "bleu", "chrf", "perplexity"],
            "predict": {"beam": 2, "nbest": 1},
            "rows": 40,
        },
        "batch": {"tokens": 200},
        "updates": 70,
        "optimizer": {"type": "sgd"},
        "schedule": {"type": "constant", "rate": 0.1},
        "activation_checkpointing": ["model.encoder.*", "model.head"],
        "without": ["unpad"],
        "parallel": {"data": "fsdp"},
        "checkpoint": {"every": 10},
        "seed": 7,
    }


def test_a_stored_translation_is_the_short_one_with_defaults() -> None:
    """Settings of other tasks disappear, and those that the run reads keep their values."""
    made, run = upgraded(STORED)

    assert made["params"] == {"model": {"spec": "transformer-tiny"}, "label_smoothing": 0.1}
    assert made["data"] == {
        "root": "data",
        "columns": {"source": TEXT, "target": TEXT},
        "train": LINES,
        "valid": LINES,
        "test": {"flickr": LINES},
        "filter": {"max_length": 250, "max_ratio": None, "duplicates": "keep"},
    }
    assert made["tokenizers"] == {"tokenizer": TOKENIZER}
    unread = ("iterations", "lengths", "sample", "max_length")
    assert made["predict"] == {
        "type": "beam",
        **{key: value for key, value in SEARCH.items() if key not in unread},
    }
    assert made["start"] is None
    assert not {"task", "parsing", "spec", "loss", "search", "tokenizer"} & made.keys()
    _, short = upgraded({**SHORT, "name": "stored", "data": STORED["data"]})
    # The smoothing is a default of the objective, and so need not be written.
    given = {"params": {**short.params, "label_smoothing": 0.1}, "auxiliary": 0.01}
    assert run.model_dump() == short.model_copy(update=given).model_dump()


@pytest.mark.parametrize("value", [{**SHORT, "params": {"max_length": 64}}, STORED])
def test_mask_predict_knows_its_number_of_positions(value: Value) -> None:
    """The objective needs it too; targets have no end token, and only two settings are read."""
    given = {"iterations": 4, "lengths": 3, "beam": 4, "alpha": 0.6, "max_length": 30}
    run = {**value, "task": "mask_predict", "spec": "mask-predict", "search": given}

    made, _ = upgraded(run)

    assert made["objective"] == "mask-predict"
    own = {"spec": "mask-predict", "params": {"max_length": "=max_length"}}
    assert made["params"]["model"] == own
    assert made["params"].get("max_length") == (64 if value["params"] else None)
    assert made["data"]["columns"] == {"source": TEXT, "target": {**TEXT, "end": False}}
    assert made["predict"] == {
        "type": "mask_predict",
        "iterations": 4,
        "lengths": 3,
        "max_length": 30,
    }
    assert made["answers"] == "target"
    assert "predict" not in made["evaluate"]
    assert made["evaluate"]["metrics"] == ["bleu", "bleu_lc", "chrf", "perplexity"]


CHARTS = ("parsing-span-lstm", {"labels": "=labels", "tags": "=tags"})
TAGS = ("parsing-tags", {"tags": "=tags", "leaves": "=leaves", "nodes": "=nodes"})


@pytest.mark.parametrize(
    ("decoder", "objective", "predictor", "model"),
    [("chart", "chart-parsing", "cky", CHARTS), ("tags", "tag-parsing", "tree_tags", TAGS)],
)
@pytest.mark.parametrize("stored", [False, True])
def test_parsers_of_charts_and_tags(
    decoder: str, objective: str, predictor: str, model: tuple[str, Value], stored: bool
) -> None:
    """They have no search and no smoothing; the sizes of the model are those of the column."""
    spec, sizes = model
    value = {**(STORED_TREES if stored else TREES), "spec": spec, "params": {"dropout": 0.2}}
    value["parsing"] = {**(PARSING if stored else {}), "decoder": decoder}
    value["loss"] = {"smoothing": 0.1 if stored else 0.0}

    made, run = upgraded(value)

    assert made["objective"] == objective
    assert made["params"] == {"model": {"spec": spec, "params": {**sizes, "dropout": 0.2}}}
    read = {"decoder": decoder, **STORED_BANK} if stored else {"files": ["a.trees"]}
    assert made["data"]["train"] == made["data"]["valid"] == {"trees": {**read, "decoder": decoder}}
    assert made["data"]["columns"] == {**TEXTS, "tree": {"type": "tree", "decoder": decoder}}
    pieces = TOKENIZER if stored else {"type": "bpe", "vocab_size": 100}
    assert made["tokenizers"] == {"source": pieces, "target": SYMBOLS}
    assert made["predict"] == {"type": predictor}
    assert made["answers"] == "tree"
    assert {"best": "evalb", "metrics": ["evalb"]}.items() <= made["evaluate"].items()
    assert run.best_is_higher


@pytest.mark.parametrize("best", ["f1", "nll"])
def test_the_loss_of_a_chart_selects_where_the_nll_did(best: str) -> None:
    """Charts and tags have no nll apart from the loss."""
    value = {**TREES, "spec": "parsing-span-lstm", "parsing": {"decoder": "chart"}}

    made = parts({**value, "evaluate": {"best": best, "sentences": 9}}, "evaluate")

    found = {"f1": "evalb", "nll": "loss"}[best]
    assert made["evaluate"] == {"best": found, "metrics": ["evalb"], "rows": 9}


@pytest.mark.parametrize("stored", [False, True])
def test_parsers_that_write_trees(stored: bool) -> None:
    """The form of the trees belongs to the files and the column, the constraint to the search."""
    value = {**(STORED_TREES if stored else TREES), "spec": "parsing-small"}
    form = {"linearization": "tensor2tensor", "clean": False, "malformed": "skip"}
    value["parsing"] = {**(PARSING if stored else {}), **form}
    value["search"] = {**(SEARCH if stored else {}), "beam": 2, "max_extra": 90}

    made, run = upgraded(value)

    assert made["objective"] == "sequence-parsing"
    assert made["params"]["model"] == {"spec": "parsing-small"}
    bank = {"files": ["a.trees"], **form, **({"decoder": "sequence"} if stored else {})}
    assert made["data"]["train"] == {"trees": bank}
    tree = {"type": "tree", "decoder": "sequence", "linearization": "tensor2tensor"}
    assert made["data"]["columns"] == {**TEXTS, "tree": tree}
    assert made["tokenizers"]["target"] == SYMBOLS
    assert made["evaluate"]["metrics"] == ["evalb", "perplexity"]
    assert (made["evaluate"]["best"], made["evaluate"]["predict"]) == ("evalb", {"beam": 1})
    assert run.predict is not None
    searched = run.predict.model_dump()
    assert {key: searched[key] for key in ("type", "beam", "max_extra", "constrained")} == {
        "type": "tree_beam",
        "beam": 2,
        "max_extra": 90,
        "constrained": True,
    }


def test_an_unconstrained_parser_may_write_pieces() -> None:
    """Then both sides have the same tokenizer."""
    value = {**TREES, "spec": "parsing-small", "parsing": {"constrained": False}}
    value["tokenizer"] = {"vocab_size": 100, "target": "pieces"}

    made = parts(value, "data", "tokenizers", "predict")

    assert made["predict"] == {"type": "tree_beam", "constrained": False}
    assert made["tokenizers"] == {"tokenizer": {"type": "bpe", "vocab_size": 100}}
    tree = {"type": "tree", "decoder": "sequence", "linearization": "vinyals"}
    assert made["data"] == {
        "columns": {"source": TEXT, "target": TEXT, "tree": tree},
        "train": {"trees": {"files": ["a.trees"], "pieces": True}},
        "valid": {"trees": {"files": ["a.trees"], "pieces": True}},
        "filter": {"max_length": 250},
    }


@pytest.mark.parametrize(
    ("spec", "given", "params"),
    [
        ("parsing-copy", {}, None),
        ("parsing-aligned", {}, {"source_vocab": 100}),
        ("parsing-aligned", {"source_vocab": 90}, {"source_vocab": 90}),
    ],
)
def test_parsers_that_copy_words(spec: str, given: Value, params: Value | None) -> None:
    """Only brackets are symbols; models that tell words from symbols need the number of pieces."""
    value = {**TREES, "spec": spec, "params": given, "parsing": {"linearization": "top_down"}}

    made = parts(value, "objective", "params", "tokenizers", "data")

    assert made["objective"] == "copy-parsing"
    model = {"spec": spec, "params": params} if params else {"spec": spec}
    assert made["params"] == {"model": model}
    assert made["tokenizers"]["target"] == BRACKETS
    assert made["data"]["columns"]["tree"]["linearization"] == "top_down"


@pytest.mark.parametrize("stored", [False, True])
def test_sampling_is_a_predictor(stored: bool) -> None:
    """The beam was the number of samples, also in validations; all of them are returned."""
    search = {**(SEARCH if stored else {}), "beam": 3, "nbest": 3, "sample": SAMPLE}
    value = {**(STORED if stored else SHORT), "search": {**search, "min_length": 2}}

    made, run = upgraded(value)

    assert run.predict is not None
    assert run.predict.model_dump(exclude_defaults=True) == {
        "samples": 3,
        "temperature": 0.7,
        "top_k": 5,
        "seed": 3,
        "min_length": 2,
    }
    assert made["predict"]["type"] == "sample"
    assert made["evaluate"]["predict"] == {"samples": 1}


def test_validations_with_groups_are_greedy() -> None:
    """A beam of 1 ignored the groups; a larger one is divided into them."""
    value = {**STORED, "search": {**SEARCH, "groups": 2}}

    assert parts(value, "evaluate")["evaluate"]["predict"] == {"beam": 1, "groups": 1}
    value["evaluate"] = {**EVALUATE, "beam": 2}
    assert parts(value, "evaluate")["evaluate"]["predict"] == {"beam": 2}
    value["evaluate"] = {**EVALUATE, "beam": 4}
    assert "predict" not in parts(value, "evaluate")["evaluate"]


@pytest.mark.parametrize("value", [SHORT, STORED])
def test_without_bleu_nothing_is_translated(value: Value) -> None:
    """Settings of the translations disappear, and no samples are logged."""
    watch = {"every": 30, "bleu": False, "best": "nll", "beam": 3, "sentences": 5}

    made = parts({**value, "evaluate": watch}, "evaluate", "predict")

    assert made["evaluate"] == {"every": 30, "best": "nll", "metrics": ["perplexity"], "samples": 0}
    assert made["predict"]["type"] == "beam"


def test_bleu_is_computed_where_it_selects() -> None:
    """`bleu` that was off did not turn off the metric that selects the best checkpoint."""
    made = parts({**SHORT, "evaluate": {"bleu": False}}, "evaluate")

    assert made["evaluate"] == parts(SHORT, "evaluate")["evaluate"]


def test_targets_of_symbols_have_their_own_vocabulary() -> None:
    """A translation into whole tokens."""
    made = parts({**SHORT, "tokenizer": {"vocab_size": 100, "target": "symbols"}}, "tokenizers")

    pieces = {"type": "bpe", "vocab_size": 100}
    assert made == {"tokenizers": {"source": pieces, "target": SYMBOLS}}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"taks": "parsing"}, "#/taks"),
        ({"task": "summary"}, "#/task"),
        ({"parsing": {"decoder": "chart"}}, "#/parsing"),
        ({"evaluate": {"bleuu": True}}, "#/evaluate/bleuu"),
        ({"search": {"baem": 3}}, "#/predict/baem"),
        ({"search": {"alpha": 0.3, "sample": {}}}, "#/predict/alpha"),
    ],
)
def test_unknown_settings_are_kept_for_the_reader(change: Value, place: str) -> None:
    """A wrong setting is reported, not dropped."""
    made = {**upgrade_run({**SHORT, **change}), "format": 3}

    with pytest.raises(SpecError) as caught:
        run_of(made, "run.json")

    assert place in [f"#{finding.at}" for finding in caught.value.findings]


def test_an_unknown_setting_of_the_loss_is_an_unknown_param() -> None:
    """The checker of the objective reports it."""
    made = upgrade_run({**SHORT, "loss": {"smooth": 0.1}})

    assert made["params"]["smooth"] == 0.1
