"""A bias of each head is a formula of the scores that reads another wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.runtime.prove.prove import prove

ADDED = {"score": {"use": "elementwise@1", "params": {"y": "x + z"}}}


def spec_of(folder: Path, type_: str, fill: dict[str, Any], **params: Any) -> weft.Spec:
    """Return attention of two heads with an input that its scores add."""
    causal = params.get("causal", False)
    spec = {
        "format": 1,
        "name": "biased",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]", "bias": type_},
        "nodes": {
            "attention": {
                "use": "attention@1",
                "in": {"x": "x", "z": "bias"},
                "params": {"heads": 2, "d_k": 2, **params},
                "fill": fill,
            }
        },
        "outputs": {"y": "attention.y"},
        **({"step": {"axis": "T"}} if causal else {}),
    }
    path = folder / "biased.json"
    path.write_text(json.dumps(spec))
    return weft.load(path)


@pytest.mark.parametrize("kind", ["f", "bias"])
def test_each_head_adds_its_own_bias(tmp_path: Path, kind: str) -> None:
    """Softmax of q k / sqrt(2) plus the bias of the head; -inf masks a pair of one head."""
    spec = spec_of(tmp_path, f"{kind}[B 2 T T]", ADDED)
    module = weft.build(spec).eval()
    torch.manual_seed(0)
    x, bias = torch.randn(3, 5, 4), torch.randn(3, 2, 5, 5)
    bias[:, 1, 2, 3] = -torch.inf
    inner = module.attention
    query, key, value = (
        part(x).unflatten(-1, (2, 2)).transpose(1, 2)
        for part in (inner.query, inner.key, inner.value)
    )
    weights = (query @ key.mT / 2**0.5 + bias).softmax(-1)

    y = module(x=x, bias=bias)["y"]

    assert list(weft.check(spec)) == []
    assert torch.allclose(y, inner.out((weights @ value).transpose(1, 2).flatten(2)), atol=1e-6)


@pytest.mark.integration
def test_a_bias_per_head_decodes_step_by_step(tmp_path: Path) -> None:
    """The steps read the rows of the bias that belong to their positions."""
    spec = spec_of(tmp_path, "f[B 2 T T]", ADDED, causal=True)

    proof = prove(spec, only=["steps", "causality"])

    assert {p.name: p.outcome for p in proof.properties} == {
        "steps": "passed",
        "causality": "passed",
    }


def test_a_bias_of_other_heads_is_refused(tmp_path: Path) -> None:
    """The finding says which wire does not fit."""
    with pytest.raises(weft.SpecError, match="z"):
        weft.build(spec_of(tmp_path, "f[B 3 T T]", ADDED))
