"""Predictors equal direct calls of the model, row by row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.runtime.codegen.generated import program_of
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.predictors.predictor import Context, Predictor
from weft.runtime.decode.predictors.registry import PREDICTORS, changed_predictor
from weft.runtime.decode.settings import BeamSearch, GenerateSettings
from weft.runtime.train.run import run_schema
from weft.specs.findings import InputError
from weft.specs.load import load

from ..continued import continued
from .conftest import Begun, Classes, Numbers, Text

ROWS: list[dict[str, Any]] = [
    {"source": "a b ac"},
    {"source": "d"},
    {"source": "ac d ac b a"},
    {"source": "b"},
]


def made(value: object, context: Context) -> Predictor:
    """Return a predictor from its JSON value."""
    return PREDICTORS.parse(value, "run.json#/predict").make(context)


def alone(model: nn.Module, row: dict[str, Any]) -> Tensor:
    """Return the scores for one row, without padding."""
    ids = torch.tensor([Text("source").encode(row["source"])])
    inputs = {"source": ids, "source_mask": ids != 0}
    with torch.no_grad():
        scores: Tensor = model(**{name: inputs[name] for name in program_of(model).graph.inputs})[
            "logits"
        ][0]
    return scores


def test_argmax_answers_with_a_class_and_probabilities(scorer: Any) -> None:
    """Padding and the order of the batch have no effect."""
    model = scorer(3, pooled=True)
    context = Context((model,), {"source": Text("source"), "label": Classes()}, "label")

    found = made("argmax", context).answers(ROWS)

    for row, answer in zip(ROWS, found, strict=True):
        wanted = alone(model, row).softmax(-1)
        assert answer.value == "xyz"[int(wanted.argmax())]
        assert list(answer.probabilities) == ["x", "y", "z"]
        assert list(answer.probabilities.values()) == pytest.approx(wanted.tolist(), abs=1e-5)


def test_several_models_average_their_probabilities(scorer: Any) -> None:
    """Not their scores."""
    models = tuple(scorer(3, pooled=True, seed=seed) for seed in (0, 1))
    context = Context(models, {"source": Text("source"), "label": Classes()}, "label")

    found = made("argmax", context).answers(ROWS)

    for row, answer in zip(ROWS, found, strict=True):
        wanted = torch.stack([alone(one, row).softmax(-1) for one in models]).mean(0)
        assert list(answer.probabilities.values()) == pytest.approx(wanted.tolist(), abs=1e-5)


def test_the_tag_of_a_word_is_that_of_its_first_piece(scorer: Any) -> None:
    """`ac` is two pieces, of which the second does not count; nor does the end token."""
    model = scorer(3)
    context = Context((model,), {"source": Text("source"), "label": Classes()}, "label")

    found = made("tags", context).predict(ROWS)

    first = [[0, 1, 2], [0], [0, 2, 3, 5, 6], [0]]
    for row, places, tags in zip(ROWS, first, found, strict=True):
        best = alone(model, row).argmax(-1)
        assert tags == ["xyz"[int(best[place])] for place in places]


def test_a_begin_token_moves_the_first_pieces(scorer: Any) -> None:
    """A model that was trained with a begin token is read one position later."""
    model = scorer(3)
    columns = {"source": Begun("source"), "label": Classes()}

    found = made("tags", Context((model,), columns, "label")).predict(ROWS)

    first = [[1, 2, 3], [1], [1, 3, 4, 6, 7], [1]]
    for row, places, tags in zip(ROWS, first, found, strict=True):
        ids = torch.tensor([columns["source"].encode(row["source"])])
        best = model(source=ids)["logits"][0].argmax(-1)
        assert tags == ["xyz"[int(best[place])] for place in places]


def test_words_must_be_read_by_the_model(scorer: Any) -> None:
    """Another text has other words than those whose positions have scores."""
    columns = {"source": Text("source"), "other": Text("other"), "label": Classes()}

    with pytest.raises(InputError, match="does not read the column 'other'"):
        made({"type": "tags", "words": "other"}, Context((scorer(3),), columns, "label"))


def test_a_number_is_decoded_by_its_column(scorer: Any) -> None:
    """The column normalizes: twice the model's output, plus 10."""
    model = scorer(1, pooled=True)
    context = Context((model,), {"source": Text("source"), "value": Numbers()}, "value")

    found = made({"type": "regression", "output": "logits"}, context).predict(ROWS)

    assert found == pytest.approx([2 * alone(model, row).item() + 10 for row in ROWS], abs=1e-4)


def test_the_mode_of_the_model_is_restored(scorer: Any) -> None:
    """Validation happens in the middle of training."""
    model = scorer(3, pooled=True).train()
    context = Context((model,), {"source": Text("source"), "label": Classes()}, "label")

    made("argmax", context).predict(ROWS)

    assert model.training


def test_missing_columns_outputs_and_values_are_reported(scorer: Any) -> None:
    """Before anything is computed."""
    model, columns = scorer(3), {"source": Text("source"), "label": Classes()}

    with pytest.raises(InputError, match="no column fills the input 'source'"):
        made("argmax", Context((model,), {"label": Classes()}, "label"))
    with pytest.raises(InputError, match="needs an output 'scores'"):
        made({"type": "argmax", "output": "scores"}, Context((model,), columns, "label"))
    with pytest.raises(InputError, match="has 3 axes, not 2"):
        made("argmax", Context((model,), columns, "label")).predict(ROWS)
    with pytest.raises(InputError, match="the row has no value for the column 'source'"):
        made("tags", Context((model,), columns, "label")).predict([{"sauce": "a"}])


@pytest.mark.parametrize("value", [None, 3, ["a"]])
def test_a_source_must_be_a_text(value: Any) -> None:
    """A null in the rows is an error, not the text 'None'."""
    model = build(check(load("transformer-tiny").form, registry(), SMALL)).eval()
    context = Context((model,), {"source": Text("source"), "target": Text("target")}, "target")

    with pytest.raises(InputError, match="the value of 'source' is"):
        made("greedy", context).predict([{"source": value}])


def test_editors_offer_only_settings_with_an_effect() -> None:
    """A run that sets another one is refused, so its JSON Schema must not complete it."""
    ways = run_schema()["properties"]["predict"]["anyOf"]
    offered = {
        way["properties"]["type"]["const"]: {*way["properties"]}
        for way in ways
        if "properties" in way
    }

    for name, kind in ((name, PREDICTORS.find(name)) for name in PREDICTORS.shipped):
        assert offered[name] == kind.model_fields.keys()
    assert "beam" in offered["beam"] - offered["greedy"]
    assert "samples" not in offered["beam"]


@pytest.mark.parametrize(
    ("own", "changes", "wanted"),
    [
        ({"type": "beam", "beam": 3}, {"alpha": 0.2}, {"type": "beam", "beam": 3, "alpha": 0.2}),
        (
            {"type": "greedy", "max_extra": 9},
            {"beam": 2},
            {"type": "beam", "beam": 2, "max_extra": 9},
        ),
        (
            {"type": "beam", "beam": 3, "max_extra": 9},
            {"top_k": 5},
            {"type": "sample", "top_k": 5, "max_extra": 9},
        ),
        ({"type": "sample", "seed": 2}, {"type": "greedy"}, {"type": "greedy"}),
        (
            {"type": "tree_beam", "beam": 3},
            {"constrained": False},
            {"type": "tree_beam", "beam": 3, "constrained": False},
        ),
    ],
)
def test_a_search_becomes_the_one_that_has_the_changed_settings(
    own: dict[str, Any], changes: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """What both have is kept."""
    found = changed_predictor(PREDICTORS.parse(own, ""), changes, "predict")

    assert found == PREDICTORS.parse(wanted, "")


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ("mask_predict", "beam"),
        ("cky", "beam"),
        ("argmax", "top_k"),
        ("tree_beam", "nbest"),
        ("beam", "beem"),
    ],
)
def test_a_setting_that_a_predictor_lacks_is_refused(own: str, name: str) -> None:
    """No search has it, or the model does not search."""
    with pytest.raises(InputError, match=f"the predictor '{own}' has no setting '{name}'"):
        changed_predictor(PREDICTORS.parse(own, ""), {name: 3}, "predict")


SMALL = {"vocab": 8, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 1, "dropout": 0.0}


@pytest.mark.integration
def test_beam_and_greedy_search_have_their_settings_and_defaults() -> None:
    """As the same search of the ids has them."""
    torch.manual_seed(0)
    model = build(check(load("transformer-tiny").form, registry(), SMALL)).eval()
    source, target = Text("source"), Text("target")
    context = Context((model,), {"source": source, "target": target}, "target")
    words = source.vocabulary
    requests = [Request([*words.encode(row["source"]), words.eos]) for row in ROWS]

    for value, search in (
        (
            {"type": "beam", "beam": 3, "alpha": 1.0, "nbest": 2},
            {"beam": 3, "alpha": 1, "nbest": 2},
        ),
        ("beam", {}),
        ({"type": "greedy", "max_extra": 3}, {"beam": 1, "max_extra": 3}),
    ):
        special = SpecialTokens.of(target.vocabulary)
        outputs = decode_ids([model], requests, special, BeamSearch(**search))
        expected = [target.vocabulary.decode(best.tokens) for [best, *_] in outputs]
        assert made(value, context).predict(ROWS) == expected
    sampled = made({"type": "sample", "samples": 3, "seed": 2}, context)
    assert sampled.predict(ROWS) == sampled.predict(ROWS)
    assert len(sampled.answers(ROWS)[0].others) == 2


def test_generation_continues_the_prefix_of_each_row() -> None:
    """The prompt begins with the begin token, as in training."""
    torch.manual_seed(0)
    graph = check(load("gpt2").form, registry(), {**SMALL, "max_length": 64})
    model, text = build(graph).eval(), Text("text")
    context = Context((model,), {"text": text, "start": Text("start")}, "text")

    found = made({"type": "generate", "prefix": "start", "max_new": 4}, context).predict(
        [{"start": row["source"]} for row in ROWS]
    )

    bos, eos = text.vocabulary.bos, text.vocabulary.eos
    for row, answer in zip(ROWS, found, strict=True):
        prompt = [bos, *text.vocabulary.encode(row["source"])]
        [[one]] = continued(model, [prompt], GenerateSettings(max_new=4), eos=(eos,))
        assert answer == text.vocabulary.decode(one.tokens)


def test_a_search_writes_the_most_probable_tokens_after_the_prefix() -> None:
    """Greedy search of a decoder-only model, by its logits for all that was written before."""
    torch.manual_seed(0)
    model = build(check(load("gpt2").form, registry(), {**SMALL, "max_length": 64})).eval()
    text = Text("text")
    context = Context((model,), {"text": text, "start": Text("start")}, "text")
    words, rows = text.vocabulary, [{"start": row["source"]} for row in ROWS]
    never = [words.bos, words.pad, *([words.unk] if words.spells_all else [])]

    found = made({"type": "greedy", "prefix": "start", "max_extra": 3}, context).predict(rows)

    for row, answer in zip(rows, found, strict=True):
        ids = words.encode(row["start"])
        most = max(1, len(ids)) + 3
        while len(ids) < most:
            logits = model(tokens=torch.tensor([[words.bos, *ids]]))["logits"][0, -1]
            logits[never] = -torch.inf
            ids.append(int(logits.argmax()))
            if ids[-1] == words.eos:
                ids.pop()
                break
        assert answer == words.decode(ids)


def test_a_decoder_only_model_has_n_best_banned_and_required_texts() -> None:
    """As a model that translates; every output begins with its prefix."""
    torch.manual_seed(0)
    model = build(check(load("gpt2").form, registry(), {**SMALL, "max_length": 64})).eval()
    texts = {name: Text(name) for name in ("text", "start", "with")}
    context = Context((model,), texts, "text")
    first, second = (row["source"].split()[0] for row in ROWS[:2])
    settings = {"type": "beam", "nbest": 3, "max_extra": 4, "prefix": "start", "include": "with"}
    row = {"start": first, "with": second}

    [answer] = made(settings, context).answers([row])
    long = {**settings, "include": None, "min_length": 3}
    [free] = made(long, context).answers([row])
    word = free.value.split()[1].strip("▁")
    [banned] = made({**long, "avoid": [word]}, context).answers([row])

    outputs = [answer.value, *(one.value for one in answer.others)]
    assert len(outputs) == 3
    assert all(one.startswith(f"▁{first}") and f"▁{second}" in one for one in outputs)
    assert answer.score >= answer.others[0].score >= answer.others[1].score
    assert f"▁{word}" not in banned.value.split()[1:]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"type": "greedy", "beam": 2}, "unknown key 'beam'"),
        ({"type": "beam", "iterations": 2}, "unknown key 'iterations'"),
        ({"type": "beam", "baem": 2}, "unknown key 'baem'"),
        ({"type": "beam", "beam": 2, "nbest": 3}, "'nbest' 3 is greater than 'beam' 2"),
        ({"type": "generate", "samples": 2}, "'samples' has no effect at temperature 0"),
        ("baem", "no predictor 'baem'"),
        (3, "must be a name or an object"),
    ],
)
def test_wrong_settings_are_refused(value: object, problem: str) -> None:
    """A setting without effect is an error."""
    with pytest.raises(InputError, match=problem):
        PREDICTORS.parse(value, "run.json#/predict")


def test_an_encoder_is_not_searched(scorer: Any) -> None:
    """The message says what the predictor needs."""
    context = Context((scorer(3),), {"source": Text("source"), "target": Text("target")}, "target")

    with pytest.raises(InputError, match="needs a model with one input of ids of the step axis"):
        made("beam", context)
