"""One tensor for several weights, and several tensors for one weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from weft.extensions.interop.export.huggingface.tensors import assembled
from weft.extensions.interop.importing.config import Configuration
from weft.extensions.interop.importing.table import ImportTable, load_table
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.checkpoint.saving import write_tensors
from weft.specs.findings import InputError, SpecError

VOCAB, WIDTH = 5, 4
SPEC: dict[str, Any] = {
    "format": 1,
    "name": "bigram",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"tokens": f"ids:{VOCAB}[B T]"},
    "outputs": {"logits": "head.y"},
    "nodes": {
        "embedding": {
            "use": "embedding@1",
            "in": {"ids": "tokens"},
            "params": {"d_model": WIDTH},
        },
        "first": {"use": "linear@1", "in": {"x": "embedding.y"}, "params": {"d_out": WIDTH}},
        "second": {"use": "linear@1", "in": {"x": "first.y"}, "params": {"d_out": WIDTH}},
        "head": {
            "use": "linear@1",
            "in": {"x": "second.y"},
            "params": {"d_out": VOCAB, "bias": False},
        },
    },
    "tie": [["embedding.weight", "head.weight"]],
}
LINES: dict[str, Any] = {
    "embedding.weight": "words",
    "head.weight": "out",
    "first.weight": "map",
    "second.weight": "map",
    "{map}.bias": {"from": "bias", "take": [[0, 4]], "unread": 0},
}
WORDS = torch.arange(VOCAB * WIDTH, dtype=torch.float32).reshape(VOCAB, WIDTH)
TENSORS = {"words": WORDS, "map": torch.randn(WIDTH, WIDTH), "bias": torch.randn(6)}


def imported(
    folder: Path,
    tensors: dict[str, Tensor],
    lines: dict[str, Any] = LINES,
    config: dict[str, Any] | None = None,
) -> Any:
    """Import a folder with tensors by a table with lines."""
    table = {
        "format": 1,
        "name": "hf-bigram",
        "doc": "A table.",
        "spec": "bigram.json",
        "model_type": ["bigram"],
        "params": {},
        "weights": lines,
    }
    (folder / "bigram.json").write_text(json.dumps(SPEC))
    (folder / "table.json").write_text(json.dumps(table))
    (folder / "config.json").write_text(json.dumps({"model_type": "bigram", **(config or {})}))
    save_file(tensors, folder / "model.safetensors")
    return weft.import_hf(folder, folder / "table.json")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"permute": [1, 0]}, {}),
        ({"split": [[2, 2]], "permute": [1, 0]}, {"split": [[2, 2]]}),
    ],
)
def test_one_tensor_may_be_several_weights(tmp_path: Path, first: Any, second: Any) -> None:
    """As it is, transposed, or in another order; the checkpoint has a tensor for each weight."""
    lines = {
        **LINES,
        "first.weight": {"from": "map", **first},
        "second.weight": {"from": "map", **second},
    }

    made = imported(tmp_path, TENSORS, lines)
    made.save(tmp_path / "out")

    weights = open_checkpoint(tmp_path / "out").weights
    order = [0, 2, 1, 3] if "split" in first else [0, 1, 2, 3]
    wanted = TENSORS["map"].T if "split" not in first and first else TENSORS["map"][order]
    assert torch.equal(weights["first.weight"], wanted)
    assert torch.equal(weights["second.weight"], TENSORS["map"])
    assert torch.equal(weights["first.bias"], weights["second.bias"])


def test_views_that_overlap_are_written_apart(tmp_path: Path) -> None:
    """Parts of one tensor, a transposed one, one with a stride of 0, and an empty one."""
    whole = torch.arange(12.0).reshape(3, 4)
    views = {
        "all": whole,
        "again": whole,
        "head": whole[:2],
        "tail": whole[1:],
        "column": whole[:, 1],
        "turned": whole.T,
        "flat": whole.view(-1),
        "repeated": whole[0, 0].expand(3),
        "none": whole[:0],
    }

    write_tensors(views, tmp_path / "x.safetensors")

    written = load_file(tmp_path / "x.safetensors")
    assert written.keys() == views.keys()
    assert all(torch.equal(written[name], view) for name, view in views.items())


def test_a_tied_weight_may_be_stored_twice(tmp_path: Path) -> None:
    """The line of the other path reads the second tensor, which must be the same."""
    made = imported(tmp_path, {**TENSORS, "out": WORDS.clone()})

    assert torch.equal(made.weights["embedding.weight"], WORDS)


def test_a_tied_weight_may_be_stored_under_its_other_path(tmp_path: Path) -> None:
    """A file that has only the output projection."""
    rest = {name: tensor for name, tensor in TENSORS.items() if name != "words"}

    made = imported(tmp_path, {**rest, "out": WORDS.clone()})

    assert torch.equal(made.weights["embedding.weight"], WORDS)


def test_tied_weights_that_differ_are_named(tmp_path: Path) -> None:
    """The configuration says that they are one weight, so neither is chosen."""
    with pytest.raises(SpecError) as error:
        imported(tmp_path, {**TENSORS, "out": WORDS + 1})

    [finding] = error.value.findings
    assert (finding.code, finding.at) == ("I05", "/weights/head.weight")
    assert finding.problem == "'words' and 'out' should be equal, but differ"
    assert "tie_word_embeddings" in finding.help


def test_a_tied_weight_without_any_tensor_is_named(tmp_path: Path) -> None:
    """By its first path."""
    rest = {name: tensor for name, tensor in TENSORS.items() if name != "words"}

    with pytest.raises(SpecError, match=r"empty  embedding\.weight  from words"):
        imported(tmp_path, rest)


def test_parts_of_one_tensor_that_overlap_are_exported() -> None:
    """If they agree where they overlap; otherwise no tensor is right."""
    table = ImportTable(
        format=1,
        name="t",
        doc="",
        spec="bert",
        model_type=("t",),
        params={},
        weights={
            "head": {"from": "all", "take": [[0, 3]]},
            "tail": {"from": "all", "take": [[2, None]]},
        },
    )
    config = Configuration({}, {}, "config.json")
    numbers = torch.arange(1.0, 6.0)

    tensors = assembled(table, "t.json", {"head": numbers[:3], "tail": numbers[2:]}, config)

    assert torch.equal(tensors["all"], numbers)
    with pytest.raises(InputError, match="are one tensor of theirs, 'all', but differ"):
        assembled(table, "t.json", {"head": numbers[:3], "tail": numbers[2:] + 1}, config)


PARTS: list[dict[str, Any]] = [
    {"from": "upper", "into": [[0, 1]]},
    {"from": "lower", "into": [[1, "=d"]]},
]


def with_parts(folder: Path, parts: Any, **more: Tensor) -> Tensor:
    """Return `first.weight` imported from two tensors by some lines."""
    tensors = {"upper": torch.ones(1, 4), "lower": torch.arange(8.0).reshape(2, 4), **more}
    read = {name: tensor for name, tensor in tensors.items() if name in json.dumps(parts)}
    lines = {**LINES, "first.weight": parts}
    made = imported(folder, {**TENSORS, **read}, lines, {"d": 3})
    weight: Tensor = made.weights["first.weight"]
    return weight


def test_lines_fill_parts_of_a_weight_and_a_number_the_others(tmp_path: Path) -> None:
    """Row 0 is of one tensor, rows 1 and 2 of another, and row 3 of none."""
    weight = with_parts(tmp_path, [{"fill": 7}, *PARTS])

    assert weight.tolist() == [[1.0] * 4, [0.0, 1, 2, 3], [4.0, 5, 6, 7], [7.0] * 4]


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (PARTS, "no line fills 4 elements of 'first.weight'"),
        ([*PARTS, {"from": "upper", "into": [2]}], "two lines fill the same entries"),
        ([PARTS[0], {"from": "lower", "into": [[3, 5]]}], "3 to 5 are out of range"),
        ([{"from": "upper"}, PARTS[1]], "each of several lines of a weight needs 'into'"),
        ([PARTS[0], {"from": "lower", "into": [[1, 4]]}], "has the wrong shape"),
        ({"from": "upper", "tile": [3]}, r"\[1, 4\], repeated \[3\] times, does not fill \[4, 4\]"),
        ({"from": "map", "times": "upper", "normalize": [2]}, "axis 2 is normalized"),
        ({"from": "map", "times": "bias"}, r"its factor has the shape \[6\], with other axes"),
        ({"from": "map", "times": {"from": "uper"}}, "uper"),
        ({"from": "map", "times": {"from": "upper", "into": [0]}}, "a factor has 'stack', 'into'"),
    ],
)
def test_lines_that_do_not_fill_a_weight_are_named(
    tmp_path: Path, parts: Any, problem: str
) -> None:
    """With the line, and the shapes of both sides."""
    with pytest.raises(SpecError, match=problem) as error:
        with_parts(tmp_path, parts)

    assert {finding.at for finding in error.value.findings} <= {"/weights/first.weight", "/weights"}


def test_a_tensor_is_repeated_along_an_axis(tmp_path: Path) -> None:
    """As `torch.Tensor.repeat` does."""
    upper = torch.arange(4.0).reshape(1, 4)

    weight = with_parts(tmp_path, {"from": "upper", "tile": [4]}, upper=upper)

    assert torch.equal(weight, upper.repeat(4, 1))


def test_a_weight_may_be_a_direction_and_norms(tmp_path: Path) -> None:
    """As the parametrization of torch, whose two tensors the export gives back."""
    layer = weight_norm(nn.Linear(WIDTH, WIDTH), "weight", dim=1)
    norm, direction = (
        getattr(layer.parametrizations.weight, f"original{n}").detach() * (n + 1) for n in (0, 1)
    )
    line = {"from": "lower", "normalize": [0], "times": "upper"}

    weight = with_parts(tmp_path, line, upper=norm, lower=direction)

    torch.testing.assert_close(weight, layer.weight.detach())
    table = load_table(tmp_path / "table.json")[0].model_copy(
        update={
            "weights": {
                "first.weight": load_table(tmp_path / "table.json")[0].weights["first.weight"]
            }
        }
    )
    tensors = assembled(table, "t.json", {"first.weight": weight}, Configuration({}, {}, ""))
    torch.testing.assert_close(tensors["upper"], norm)
    torch.testing.assert_close(tensors["lower"], weight)


def test_a_placeholder_with_a_star_stands_for_several_parts(tmp_path: Path) -> None:
    """One line for all weights of two nodes."""
    nodes = ("first", "second")
    lines = {
        "embedding.weight": "words",
        **{f"{node}.{{*p}}": f"net.{node}.{{p}}" for node in nodes},
    }
    tensors = {f"net.{node}.weight": torch.randn(WIDTH, WIDTH) for node in nodes}
    tensors |= {f"net.{node}.bias": torch.randn(WIDTH) for node in nodes}

    made = imported(tmp_path, {"words": WORDS, **tensors}, lines)

    assert torch.equal(made.weights["second.bias"], tensors["net.second.bias"])


SEVERAL = ["words", "shared", "lm.words"]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ({"embedding.weight": SEVERAL}, ["shared"]),
        ({"embedding.weight": SEVERAL}, ["shared", "lm.words"]),
        ({"embedding.weight": SEVERAL}, ["words"]),
        ({}, ["words", "out"]),
        ({}, ["words"]),
        ({}, ["out"]),
    ],
)
def test_an_export_has_the_tensors_that_the_imported_folder_had(
    tmp_path: Path, lines: dict[str, Any], names: list[str]
) -> None:
    """Their class reads a tensor under the names of its folder, and may ignore it under others."""
    own = {name: tensor for name, tensor in TENSORS.items() if name != "words"}
    tensors = {**own, "bias": own["bias"][:4], **{name: WORDS.clone() for name in names}}
    every = {**LINES, "{map}.bias": "bias", **lines}
    if lines:
        del every["head.weight"]
    imported(tmp_path, tensors, every).save(tmp_path / "ours")

    weft.export(tmp_path / "ours", "huggingface", tmp_path / "out", table=tmp_path / "table.json")

    again = load_file(tmp_path / "out" / "model.safetensors")
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


@pytest.mark.integration
def test_a_stacked_tensor_keeps_the_name_that_its_folder_had(tmp_path: Path) -> None:
    """Each of the stacked tensors, which are written under their own numbers."""
    rows = {f"row.{i}.old": torch.full((WIDTH,), float(i)) for i in range(VOCAB)}
    tensors = {**TENSORS, "bias": TENSORS["bias"][:4], **rows}
    del tensors["words"]
    lines = {**LINES, "{map}.bias": "bias"}
    del lines["head.weight"]
    stack = {"from": ["row.{e}.new", "row.{e}.old"], "stack": {"e": VOCAB}}
    imported(tmp_path, tensors, {**lines, "embedding.weight": stack}).save(tmp_path / "ours")

    weft.export(tmp_path / "ours", "huggingface", tmp_path / "out", table=tmp_path / "table.json")

    assert load_file(tmp_path / "out" / "model.safetensors").keys() == tensors.keys()
