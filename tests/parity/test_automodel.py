"""Models without a counterpart, opened by transformers in a process that cannot import weft."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor
from torch.nn import functional as F
from weft.extensions.interop.export.automodel.export import export_automodel
from weft.extensions.interop.export.automodel.interface import interface_of
from weft.runtime.checkpoint.checkpoint import Checkpoint, open_checkpoint
from weft.runtime.checkpoint.saving import Contents, save
from weft.runtime.spec.check import graph_of
from weft.specs.load import load

from ..extensions.interop.small_exports import IDS, SMALL, checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.integration]

PUBLISHED = Path(__file__).parents[2] / "examples" / "published"
LINEAR = {"use": "gated_linear_attention@1", "params.heads": 2, "params.rank": 4, "params.chunk": 4}
FIRST = "decoder.0.self_attention/f"
HYBRID = {
    "format": 1,
    "extends": "gpt2",
    "name": "hybrid",
    "patch": [
        {"select": FIRST, "set": LINEAR},
        {"select": FIRST, "remove": ["params.causal", "params.dropout"]},
    ],
}
"""A gated linear attention in the first layer of a GPT-2."""
SPECS: dict[str, Any] = {
    "talking-heads": PUBLISHED / "talking-heads.json",
    "moe-transformer": "moe-transformer",
    "conv-s2s": "conv-s2s",
    "hybrid": HYBRID,
    "retnet": PUBLISHED / "retnet.json",
    "lstm-tagger": "lstm-tagger",
    "bert-classifier": "bert-classifier",
    "realformer": PUBLISHED / "realformer.json",
    "parsing-span": "parsing-span",
    "whisper": "whisper",
    "layer-wise-coordination": PUBLISHED / "layer-wise-coordination.json",
}
"""One model of each kind; the counterparts of some are not used here."""
NEW, BEAM = 9, 3
NEVER = [[IDS["begin"]], [IDS["pad"]]]


def stored(name: str, folder: Path) -> Checkpoint:
    """Return a small checkpoint with varied weights."""
    source = SPECS[name]
    if isinstance(source, dict):
        source = folder.with_suffix(".json")
        source.parent.mkdir(exist_ok=True)
        source.write_text(json.dumps(SPECS[name]))
    params = load(source).form.params
    sizes = {"d_characters": 16, **SMALL, "d_k": 8}
    graph = graph_of(load(source, {k: v for k, v in sizes.items() if k in params}))
    made = checkpoint(graph)
    save(folder, Contents(graph=graph, weights=made.weights, state=made.state))
    return open_checkpoint(folder)


def case_of(ours: Checkpoint, folder: Path) -> dict[str, Any]:
    """Return what the other process gets: arguments by the names of transformers."""
    export_automodel(ours, folder)
    interface = interface_of(ours)
    inputs = weft.example_inputs(ours.graph)
    arguments = {interface.arguments[name]: value for name, value in inputs.items()}
    half = {
        name: value.bfloat16() if value.is_floating_point() else value
        for name, value in arguments.items()
    }
    return {
        "folder": str(folder),
        "arguments": arguments,
        "half": half,
        "labels": labels_of(interface.head, ours.build()(**inputs), arguments),
        "calls": calls(interface.head, arguments),
    }


def labels_of(head: str, outputs: dict[str, Tensor], arguments: dict[str, Tensor]) -> Tensor | None:
    """Return labels of the shape that a head reads, of which one is missing."""
    generator = torch.Generator().manual_seed(9)
    if not head:
        return None
    logits = outputs["logits"]
    shape = logits.shape[:-1] if head != "CausalLM" else arguments["input_ids"].shape
    labels = torch.randint(0, logits.size(-1), shape, generator=generator)
    if labels.dim() > 1:
        labels[1, -1] = -100
    return labels


def calls(head: str, arguments: dict[str, Tensor]) -> list[dict[str, Any]]:
    """Return arguments of `generate`: greedily, and with beams."""
    settings: dict[str, Any] = {"do_sample": False, "max_new_tokens": NEW, "bad_words_ids": NEVER}
    beams = {"num_beams": BEAM, "length_penalty": 1.0, "early_stopping": "never"}
    if head == "CausalLM":
        generator = torch.Generator().manual_seed(4)
        ids = torch.randint(4, 40, (3, 5), generator=generator)
        mask = torch.arange(5) >= torch.tensor([[0], [2], [1]])
        source = {"input_ids": ids * mask, "attention_mask": mask.long()}
    elif head == "Seq2SeqLM":
        source = {name: v for name, v in arguments.items() if not name.startswith("decoder_")}
        if "attention_mask" in source:  # the end of the second row is padding
            rows, length = source["attention_mask"].shape
            source["attention_mask"] = (
                torch.arange(length) < length - 2 * torch.arange(rows)[:, None]
            )
    else:
        return []
    return [{**source, **settings, "num_beams": 1}, {**source, **settings, **beams}]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Checkpoint, Any, Any]]:
    """Return each checkpoint, what the other process got, and what it returned."""
    pytest.importorskip("transformers", reason="needs transformers: make test-parity")
    folder = tmp_path_factory.mktemp("automodel")
    ours = {name: stored(name, folder / "ours" / name) for name in SPECS}
    cases = {name: case_of(made, folder / "theirs" / name) for name, made in ours.items()}
    torch.save(cases, folder / "cases.pt")
    script = Path(__file__).with_name("open_without_weft.py")
    words = [sys.executable, str(script), str(folder / "cases.pt"), str(folder / "results.pt")]
    subprocess.run(words, check=True, cwd=folder)
    results = torch.load(folder / "results.pt", weights_only=False)
    return {name: (ours[name], cases[name], results[name]) for name in SPECS}


EVERY = pytest.mark.parametrize("name", SPECS)
GENERATING = pytest.mark.parametrize(
    "name", ["talking-heads", "moe-transformer", "conv-s2s", "hybrid", "retnet"]
)


@EVERY
def test_outputs_are_equal(opened: Any, name: str) -> None:
    """With padding, and again after `save_pretrained`; no weight is missing or left over."""
    ours, case, results = opened[name]
    interface = interface_of(ours)
    inputs = {port: case["arguments"][role] for port, role in interface.arguments.items()}
    with torch.no_grad():
        expected = ours.build()(**inputs)

    assert all(not report for _, report in results["opened"])
    outputs = {port: field for port, field in interface.outputs.items() if port in expected}
    for port, field in outputs.items():
        torch.testing.assert_close(results["outputs"][field], expected[port])
        torch.testing.assert_close(results["outputs_again"][field], expected[port])
    assert results["finite"]


@pytest.mark.parametrize(
    ("name", "auto"),
    [
        ("talking-heads", "AutoModelForSeq2SeqLM"),
        ("hybrid", "AutoModelForCausalLM"),
        ("lstm-tagger", "AutoModelForTokenClassification"),
        ("bert-classifier", "AutoModelForSequenceClassification"),
        ("realformer", "AutoModelForMaskedLM"),
        ("parsing-span", "AutoModel"),
    ],
)
def test_each_kind_has_its_auto_class(opened: Any, name: str, auto: str) -> None:
    """Besides AutoModel, which opens every folder."""
    assert {kind for kind, _ in opened[name][2]["opened"]} == {"AutoModel", auto}


@EVERY
def test_the_cache_changes_no_output(opened: Any, name: str) -> None:
    """Greedily and with beams, for prompts that are padded on the left too."""
    results = opened[name][2]

    assert len(results["generated"]) == len(results["uncached"])
    for cached, uncached in zip(results["generated"], results["uncached"], strict=True):
        assert torch.equal(cached, uncached)


@GENERATING
@pytest.mark.parametrize("beam", [1, BEAM])
def test_generate_writes_what_weft_writes(opened: Any, name: str, beam: int) -> None:
    """Of beams, with the penalty that both have."""
    ours, case, results = opened[name]
    call = case["calls"][beam > 1]
    written = results["generated"][beam > 1].tolist()
    mask = call["attention_mask"].bool()
    sources = [row[keep].tolist() for row, keep in zip(call["input_ids"], mask, strict=True)]
    search: dict[str, Any] = {"beam": beam}
    search |= {"penalty": "length", "alpha": 1.0, "ends": "best"} if beam > 1 else {}
    if ours.graph.inputs.keys() == {"tokens"}:
        model = weft.open(ours.folder)
        hypotheses = model.generate(sources, max_new=NEW, **search)
        written = [row[call["input_ids"].size(1) :] for row in written]
    else:
        model = weft.open(ours.folder, predict={**search, "max_length": NEW})
        hypotheses = model.decode(sources)
        written = [row[1:] for row in written]

    assert [until_end(row) for row in written] == [list(best[0].tokens) for best in hypotheses]


def until_end(row: list[int]) -> list[int]:
    """Return ids before the end id."""
    return row[: row.index(IDS["end"])] if IDS["end"] in row else row


@EVERY
def test_the_loss_is_that_of_the_library(opened: Any, name: str) -> None:
    """Labels of a language model are shifted; -100 is left out; balancing of experts is added."""
    ours, case, results = opened[name]
    interface = interface_of(ours)
    if not interface.head:
        pytest.skip("it has no head")
    inputs = {port: case["arguments"][role] for port, role in interface.arguments.items()}
    with torch.no_grad():
        outputs = ours.build()(**inputs)
    logits, labels = outputs["logits"], case["labels"]
    if interface.head == "CausalLM":
        logits, labels = logits[:, :-1], labels[:, 1:]
    expected = F.cross_entropy(logits.flatten(0, -2), labels.flatten())
    expected = expected + sum(0.01 * outputs[loss].sum() for loss in interface.auxiliary)

    torch.testing.assert_close(results["loss"], expected)


@EVERY
def test_the_trainer_fine_tunes_it(opened: Any, name: str) -> None:
    """On a batch that it learns by heart."""
    losses = opened[name][2].get("losses")
    if losses is None:
        pytest.skip("it has no head")

    assert sum(losses[-4:]) < 0.95 * sum(losses[:4])
