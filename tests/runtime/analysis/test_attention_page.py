"""Attention weights as a page and as a picture: correct weights, and words without markup."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from weft.runtime import api
from weft.runtime.analysis.attention_pictures import groups_of
from weft.runtime.analysis.attention_weights import AttentionMaps
from weft.runtime.cli.main import main

pytestmark = pytest.mark.integration


@pytest.fixture
def folder(toy_checkpoint: Path) -> Path:
    """Return a checkpoint of a barely trained model: one layer of two heads on each side."""
    return toy_checkpoint


def test_a_page_holds_the_weights_of_every_head(folder: Path, tmp_path: Path) -> None:
    """They equal those of `attention`, grouped by the sequences; each row sums to one."""
    out = tmp_path / "heads.html"

    assert main(["attend", str(folder), "sun moon", "--target", "tree", "-o", str(out)]) == 0

    text = out.read_text(encoding="utf-8")
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found.group(1))
    [maps] = api.open_model(folder).attention(["sun moon"], ["tree"])
    assert [group["title"] for group in data["groups"]] == [
        "source reads source",
        "target reads target",
        "target reads source",
    ]
    crossed = data["groups"][2]
    assert (tuple(crossed["reads"]), tuple(crossed["read"])) == (maps.target, maps.source)
    [layer] = crossed["layers"]
    for head, weights in zip(layer["heads"], maps.weights[layer["path"]].tolist(), strict=True):
        for row, wanted in zip(head, weights, strict=True):
            assert row == pytest.approx(wanted, abs=1e-4)
            assert sum(row) == pytest.approx(1.0, abs=0.01)


def test_a_page_loads_nothing_and_escapes_words(folder: Path, tmp_path: Path) -> None:
    """Not even for a sentence that contains a script."""
    out = tmp_path / "heads.html"
    attack = "</script><script>alert(1)</script>"

    assert main(["attend", str(folder), attack, "--target", attack, "-o", str(out)]) == 0

    text = out.read_text(encoding="utf-8")
    assert text.count("<script") == 2
    assert "alert(1)" not in re.sub(r'(?s)id="data">.*?</script>', "", text)
    names = text.replace(attack, "").replace("http://www.w3.org/2000/svg", "")  # not an address
    assert not re.search(r"https?://|src=|href=|@import", names)
    assert "default-src 'none'" in text


def test_a_picture_is_written(folder: Path, tmp_path: Path) -> None:
    """One PNG of all groups, or vectors of the selected one."""
    out = tmp_path / "heads.png"

    assert main(["attend", str(folder), "sun moon", "-o", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")

    only = ["--only", "target reads source"]
    vectors = tmp_path / "heads.svg"
    assert main(["attend", str(folder), "sun moon", *only, "-o", str(vectors)]) == 0
    assert b"<svg" in vectors.read_bytes()
    assert b"<image" not in vectors.read_bytes()  # no pixels


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["sun", "-o", "heads.gif"], "the suffix '.gif'"),
        (["", "-o", "heads.png"], "is empty"),
        (["sun", "--only", "cross", "-o", "heads.png"], "target reads source"),
        (["sun " * 300, "--target", "moon", "-o", "heads.html"], "more than 200 pieces"),
    ],
)
def test_a_page_that_cannot_be_drawn_is_refused(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    """The error has a help text, and no file is written."""
    monkeypatch.chdir(tmp_path)

    assert main(["attend", str(folder), *options]) == 1

    assert words in capsys.readouterr().err
    assert list(tmp_path.glob("heads.*")) == []


def test_sentences_of_equal_length_are_distinguished(folder: Path) -> None:
    """By the axes of the graph, not by their length."""
    model = api.open_model(folder)
    [maps] = model.attention(["sun moon"], ["tree"])
    size = min(len(maps.source), len(maps.target))
    same = AttentionMaps(
        source=maps.source[:size],
        target=maps.target[:size],
        weights={path: w[:, :size, :size] for path, w in maps.weights.items()},
    )

    titles = [group.title for group in groups_of(model.graph, same)]

    assert titles == ["source reads source", "target reads target", "target reads source"]
