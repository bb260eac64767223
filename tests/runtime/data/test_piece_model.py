"""Texts that are split into pieces at random."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.data.piece_model import BPE, NORMAL, UNIGRAM, USER, PieceModel
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.tokenizer import Tokenizer, train_tokenizer

LINES = ["the cat sat on the mat", "a cat and a bat", "(NP the hat) that sat", "more text, at last"]
DRAWS = 4000


def trained(tmp_path_factory: pytest.TempPathFactory, **settings: object) -> Tokenizer:
    """Train a tokenizer on a few lines."""
    path = tmp_path_factory.mktemp("pieces") / "x.model"
    size = 28 if settings.get("type") == "unigram" else 45
    value = {"vocab_size": size, "user_symbols": ("(NP",), **settings}
    return train_tokenizer(LINES, PieceSettings.model_validate(value), path)


@pytest.fixture(scope="module", params=["bpe", "bytes"])
def merging(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return a BPE tokenizer, also with bytes."""
    if request.param == "bpe":
        return trained(tmp_path_factory)
    return trained(tmp_path_factory, vocab_size=310, byte_fallback=True)


@given(text=st.text(st.sampled_from("thecamo (NPz\u00e9\u4e2d"), max_size=30))
def test_without_skipped_merges_bpe_splits_as_sentencepiece(merging: Tokenizer, text: str) -> None:
    """Also user symbols, characters in bytes, and adjacent unknown ones."""
    assert merging.sample(text, 0.0, 1) == merging.encode(text)


def test_with_all_merges_skipped_bpe_splits_into_characters(merging: Tokenizer) -> None:
    """A user symbol stays."""
    pieces = merging.pieces(merging.sample("the (NP cat", 1.0, 1))

    assert pieces == ["\u2581", *"the", "\u2581", "(NP", "\u2581", *"cat"]


def frequencies(model: PieceModel, text: str, amount: float) -> dict[tuple[str, ...], float]:
    """Return how often each split occurs."""
    counts = Counter(tuple(model.sample(text, amount, seed)) for seed in range(DRAWS))
    return {split: count / DRAWS for split, count in counts.items()}


def near(share: float) -> object:
    """Approximate a frequency by five standard deviations."""
    return pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / DRAWS))


def test_skipped_merges_have_their_probability() -> None:
    """By hand: `ab` is merged with 0.7, then `abc` with 0.7; `bc` is worse, and comes second."""
    pieces = [("ab", -1.0, NORMAL), ("bc", -2.0, NORMAL), ("abc", -3.0, NORMAL)]

    shares = frequencies(PieceModel(pieces, BPE), "abc", 0.3)

    assert shares == {
        ("abc",): near(0.7 * 0.7 + 0.3 * 0.7 * 0.7),
        ("ab", "c"): near(0.7 * 0.3),
        ("a", "bc"): near(0.3 * 0.7 * 0.3),
        ("a", "b", "c"): near(0.3 * 0.3),
    }


@pytest.mark.parametrize("exponent", [0.2, 1.0])
def test_unigram_splits_have_their_probability(exponent: float) -> None:
    """All splits of a text, by trying each set of cuts; an unknown character is never joined."""
    scores = {"a": -1.0, "b": -2.0, "ab": -1.5, "ba": -2.5, "aba": -3.0}
    text = "abaxb"
    unknown = min(scores.values()) - 10
    splits = dict[tuple[str, ...], float]()
    for cuts in itertools.product([False, True], repeat=len(text) - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(text)]
        split = tuple(text[start:end] for start, end in itertools.pairwise(edges))
        if all(piece in scores or piece == "x" for piece in split):
            splits[split] = math.exp(exponent * sum(scores.get(p, unknown) for p in split))
    total = sum(splits.values())
    model = PieceModel([(piece, score, NORMAL) for piece, score in scores.items()], UNIGRAM)

    shares = frequencies(model, text, exponent)

    assert shares == {split: near(weight / total) for split, weight in splits.items()}


def test_a_piece_of_the_user_is_never_cut() -> None:
    """Not even if its parts are probable."""
    pieces = [("a", -1.0, NORMAL), ("b", -1.0, NORMAL), ("ab", 0.0, USER), ("bab", -0.1, NORMAL)]

    assert frequencies(PieceModel(pieces, UNIGRAM), "bab", 1.0) == {("b", "ab"): 1.0}


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_split_keeps_the_text(tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    """Other seeds give other splits of it."""
    tokenizer = trained(tmp_path_factory, type=kind)
    splits = [tokenizer.sample(LINES[2], 0.3, seed) for seed in range(20)]

    assert {tokenizer.decode(ids) for ids in splits} == {LINES[2]}
    assert len({*map(tuple, splits)}) > 1


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_every_process_splits_alike(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, kind: str
) -> None:
    """As the ids of a training that is stopped and continued must be."""
    tokenizer, path = trained(tmp_path_factory, type=kind), tmp_path / "a.model"
    path.write_bytes(tokenizer.bytes)
    program = (
        "import sys; from weft.runtime.data.tokenizer import Tokenizer;"
        "t = Tokenizer.open(sys.argv[1]);"
        f"print([t.sample({LINES[0]!r}, 0.3, seed) for seed in range(50)])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
    ).stdout

    assert printed.strip() == str([tokenizer.sample(LINES[0], 0.3, seed) for seed in range(50)])


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_splits_are_distributed_as_those_of_sentencepiece(
    tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    """Half the sum of the differences of all frequencies; with other amounts it is above 0.1."""
    from sentencepiece import SentencePieceProcessor  # noqa: PLC0415 - for this test

    tokenizer = trained(tmp_path_factory, type=kind)
    other = SentencePieceProcessor(model_proto=tokenizer.bytes)
    ours = Counter(tuple(tokenizer.sample("the cat", 0.2, seed)) for seed in range(DRAWS))
    theirs = Counter(
        tuple(other.encode("the cat", enable_sampling=True, alpha=0.2, nbest_size=-1))
        for _ in range(DRAWS)
    )

    distance = sum(abs(ours[split] - theirs[split]) for split in ours | theirs) / (2 * DRAWS)

    assert distance < 0.08
