"""A toy treebank from a small grammar, and runs that train on it."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.parsing.trees.trees import Leaf, Tree, pretty
from weft.runtime.train.run import Run

SMALL = {"d_model": 32, "heads": 2, "d_ff": 64, "layers": 1, "dropout": 0.0}
NOUNS, VERBS = ("dog", "cat", "bird", "-LRB-", "1\\/2"), ("sees", "hears")


def sentence(draw: random.Random) -> Tree:
    """Return a tree of the toy grammar; noun phrases may be nested, joined by `of`."""

    def noun_phrase(depth: int) -> Tree:
        noun = Tree("NP", (Leaf("DT", "the"), Leaf("NN", draw.choice(NOUNS))))
        if depth == 0 or draw.random() < 0.6:
            return noun
        inner = Tree("PP", (Leaf("IN", "of"), noun_phrase(depth - 1)))
        return Tree("NP", (noun, inner))

    verb = Leaf("VBZ", draw.choice(VERBS))
    verb_phrase = Tree("VP", (verb, noun_phrase(1)) if draw.random() < 0.7 else (verb,))
    return Tree("TOP", (Tree("S", (noun_phrase(2), verb_phrase, Leaf(".", "."))),))


def bank(count: int, seed: int) -> list[Tree]:
    """Return `count` random trees."""
    draw = random.Random(seed)
    return [sentence(draw) for _ in range(count)]


def parser_of(model: Any, predict: Mapping[str, Any] | None = None) -> Any:
    """Return the parser of an opened model."""
    return model.predictor(predict).parser


def write_banks(folder: Path) -> None:
    """Write `train.trees.gz`, one tree a line, and `valid.trees`, pretty-printed."""
    lines = "".join(f"{tree}\n" for tree in bank(120, 1))
    (folder / "train.trees.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "valid.trees").write_text("".join(pretty(t, width=20) + "\n" for t in bank(12, 2)))


@pytest.fixture
def tree_run(tmp_path: Path) -> Callable[..., Run]:
    """Return a factory of small runs: model, form of the trees, and top-level keys."""
    return make_runs(tmp_path / "banks")


@pytest.fixture(scope="module")
def tree_run_module(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Return the same factory with module scope, so that tests may share a trained model."""
    return make_runs(tmp_path_factory.mktemp("trees") / "banks")


def make_runs(data: Path) -> Callable[..., Run]:
    """Write treebanks into a new folder; return a factory of runs on them."""
    data.mkdir()
    write_banks(data)

    def make(
        spec: str = "parsing-small",
        params: Mapping[str, Any] = SMALL,
        linearization: str = "vinyals",
        **changes: Any,
    ) -> Run:
        form = {"linearization": linearization}
        symbols = {"type": "symbols"}
        if linearization == "top_down":
            symbols |= {"spelling": "source", "only": "brackets"}
        train, valid = (
            {"trees": {"files": [name], **form}} for name in ("train.trees.gz", "valid.trees")
        )
        copies = linearization == "top_down"
        value: dict[str, Any] = {
            "format": 1,
            "name": "toy",
            "objective": "copy-parsing" if copies else "sequence-parsing",
            "params": {"model": {"spec": spec, "params": dict(params)}},
            "data": {
                "root": str(data),
                "columns": {
                    "source": {"type": "text", "tokenizer": "source"},
                    "target": {"type": "text", "tokenizer": "target"},
                    "tree": {"type": "tree", "decoder": "sequence", **form},
                },
                "train": train,
                "valid": valid,
                "test": {"toy": valid},
            },
            "tokenizers": {"source": {"type": "bpe", "vocab_size": 40}, "target": symbols},
            "batch": {"tokens": 300},
            "accumulate": 1,
            "updates": 6,
            "schedule": {"peak": 0.003},
            "evaluate": {"every": 3, "metrics": ["evalb", "perplexity"], "best": "evalb"},
            "checkpoint": {"every": 2, "keep": 3, "average": 2},
            "predict": {"type": "tree_beam", "beam": 2, "alpha": 0.3, "max_extra": 60},
            "answers": "tree",
            "threads": 1,
            "precision": "float32",
        }
        return Run.model_validate({**value, **changes})

    return make
