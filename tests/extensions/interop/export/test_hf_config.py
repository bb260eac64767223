"""`config.json` of an export: ids of this vocabulary, types of numbers, and the original values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.interop.export.huggingface.fit import fit
from weft.extensions.interop.importing.config import Configuration, keys_read, settle
from weft.extensions.interop.importing.table import ImportTable, load_table
from weft.graphs.ir.canonical import canonical
from weft.graphs.ir.graph import Graph
from weft.runtime.spec.check import graph_of
from weft.specs.load import load, loaded

pytestmark = pytest.mark.integration

SMALL: dict[str, Any] = {"d_model": 16, "heads": 2, "d_ff": 10, "layers": 2, "vocab": 11}


def small(name: str, **more: Any) -> Graph:
    """Return the graph of a shipped spec at a small size, without params."""
    return graph_of(loaded(canonical(graph_of(load(name, {**SMALL, **more})))))


def written(
    table: ImportTable | str, graph: Graph, ids: Any, original: Any = None
) -> dict[str, Any]:
    """Return the configuration with which a table describes a graph."""
    read, source = load_table(table) if isinstance(table, str) else (table, "table.json")
    fitted = fit(read, source, graph, ids, original)
    assert fitted.obstacles == ()
    return json.loads(json.dumps(fitted.config))  # type: ignore[no-any-return]


def child(folder: Path, **changes: Any) -> str:
    """Write a table that extends that of GPT-2, and return its path."""
    path = folder / "child.json"
    path.write_text(json.dumps({"format": 1, "extends": "hf-gpt2", "name": "child", **changes}))
    return str(path)


def test_ids_of_tokens_are_those_of_this_vocabulary() -> None:
    """Without them, those of the class would apply: 50,256 for GPT-2."""
    config = written("gpt2", small("gpt2"), {"begin": 3, "end": 2, "pad": 1})

    ids = {key: config[f"{key}_token_id"] for key in ("bos", "eos", "pad")}
    assert ids == {"bos": 3, "eos": 2, "pad": 1}


@pytest.mark.parametrize("table", ["gpt2", "bert"])
def test_ids_that_are_unknown_are_null(table: str) -> None:
    """They are keys of the file, so that no default of the class applies."""
    config = written(table, small(table), {})

    assert [config[f"{key}_token_id"] for key in ("bos", "eos", "pad")] == [None] * 3


def test_an_encoder_decoder_begins_with_its_begin_id() -> None:
    """And no output has to begin or end with an id of the class."""
    config = written("bart", small("bart"), {"begin": 3, "end": 2, "pad": 1})

    assert config["decoder_start_token_id"] == config["bos_token_id"] == 3
    assert config["forced_bos_token_id"] is config["forced_eos_token_id"] is None


def test_a_model_that_reads_no_ids_has_none() -> None:
    """Images have no begin token."""
    sizes = {"height": 8, "width": 8, "patch": 4, "labels": 3}
    graph = graph_of(load("vit", {**sizes, "d_model": 16, "heads": 2, "d_ff": 10, "layers": 1}))

    assert not [key for key in written("vit", graph, {}) if key.endswith("token_id")]


@pytest.mark.parametrize("rate", [0, 0.0])
def test_numbers_have_the_types_of_the_defaults(tmp_path: Path, rate: float) -> None:
    """The library refuses 8.0 where it wants 8, and 0 where it wants 0.0."""
    path = child(tmp_path, defaults={"resid_pdrop": rate})

    config = written(path, small("gpt2", dropout=0.0), {})

    assert type(config["resid_pdrop"]) is type(rate)
    assert type(config["n_embd"]) is int


def test_keys_that_must_be_equal_have_one_type(tmp_path: Path) -> None:
    """The second key is solved from the first: 50.0, and not 50."""
    require = [{"that": "other_cap == attn_logit_softcapping", "else": "two bounds"}]
    path = child(tmp_path, extends="hf-gemma2", require=require)
    graph = small("gemma2", kv_heads=1, d_k=8, scale=0.25)

    config = written(path, graph, {})

    for key in ("attn_logit_softcapping", "other_cap"):
        assert (config[key], type(config[key])) == (50.0, float)
    assert (config["query_pre_attn_scalar"], type(config["query_pre_attn_scalar"])) == (16, int)


def test_a_table_may_say_the_usual_name_of_a_value(tmp_path: Path) -> None:
    """Two names of one activation: the default is chosen, not the first."""
    path = child(tmp_path, defaults={"activation_function": "gelu_pytorch_tanh"})

    assert written("gpt2", small("gpt2"), {})["activation_function"] == "gelu_new"
    assert written(path, small("gpt2"), {})["activation_function"] == "gelu_pytorch_tanh"


@pytest.mark.parametrize("by", ["import", "stranger"])
def test_an_imported_model_has_its_original_configuration(by: str) -> None:
    """Names, numbers and ids are as they were; other texts are not, since they may name code.

    An import does not store them, and a stranger's checkpoint may.
    """
    graph = small("gpt2", dropout=0.0)
    original = {
        **written("gpt2", graph, {}),
        "activation_function": "gelu_pytorch_tanh",
        "bos_token_id": 7,
        "sep_token_id": 4,
        "initializer_range": 0.5,
        "attn_implementation": "someone/kernel",
        "auto_map": {"AutoModel": "code.Model"},
    }
    table, _ = load_table("gpt2")
    config = Configuration(original, table.defaults, "config.json")

    stored = original if by == "stranger" else config.stated(keys_read(table))
    again = written("gpt2", graph, {"begin": 7}, stored)

    code = ("attn_implementation", "auto_map")
    assert again == {key: value for key, value in original.items() if key not in code}


def test_null_overrides_the_default_of_the_extended_table(tmp_path: Path) -> None:
    """And a param that is null is given to the spec."""
    path = child(
        tmp_path,
        defaults={"pad_token_id": None, "n_inner": None},
        params={"d_ff": "=4*n_embd", "dropout": None},
        require=[{"key": "n_inner", "among": [None], "else": "another width"}],
    )
    table, source = load_table(path)
    sizes = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 8, "vocab_size": 11}
    rates = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5}
    config = {**sizes, **rates, "activation_function": "gelu_new", "eos_token_id": 2}

    settled = settle(table, source, Configuration(config, table.defaults, "config.json"))

    assert settled["tokens"]["pad"] is None
    assert settled["params"]["dropout"] is None
