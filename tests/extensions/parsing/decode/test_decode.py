"""CKY and the automaton of trees."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from weft.extensions.parsing.decode.cky import best_trees
from weft.extensions.parsing.decode.tree_automaton import MAX_UNARY, TreeProcessor
from weft.extensions.parsing.trees.linearization import LINEARIZATIONS
from weft.extensions.parsing.trees.trees import Leaf, Tree
from weft.runtime.decode.search.search import beam_search
from weft.runtime.decode.settings import BeamSearch

from ....blocks.binary_trees import trees

LENGTHS = torch.tensor([6, 1, 4, 2, 5, 3])
"""Words of the sentences of one batch."""


@pytest.mark.parametrize("seed", range(3))
def test_the_best_tree_is_the_best_of_all(seed: int) -> None:
    """Its spans are returned from the outside in."""
    generator = torch.Generator().manual_seed(seed)
    weight_BNN = torch.randn(len(LENGTHS), 6, 6, generator=generator)

    found = best_trees(weight_BNN, LENGTHS)

    for row, length in enumerate(LENGTHS.tolist()):
        best = max(
            trees(0, length - 1),
            key=lambda tree: sum(weight_BNN[row][span].item() for span in tree),
        )
        assert frozenset(found[row]) == best
        assert found[row][0] == (0, length - 1)
        assert len(found[row]) == 2 * length - 1


PAD, EOS, UNK, BOS = range(4)
SPECIAL_TOKENS = ["<pad>", "</s>", "<unk>", "<s>"]
VOCABULARIES = {
    "vinyals": [*SPECIAL_TOKENS, "XX", "(S", ")S", "(NP", ")NP", "(VP", ")VP"],
    "tensor2tensor": [*SPECIAL_TOKENS, "NN", "VB", ".", "S", "/S", "NP", "/NP"],
    "top_down": [*SPECIAL_TOKENS, "(S", "(NP", ")", "dog", "cat", "runs"],
}
EVERY = pytest.mark.parametrize("name", VOCABULARIES)


class Chance:
    """A model of random scores with a bias towards some symbols, such as openings."""

    def __init__(self, sentences: int, beam: int, seed: int, size: int, leaning: int) -> None:
        """Begin every row with an empty prefix."""
        self.rows, self.seed, self.size, self.leaning = sentences, seed, size, leaning
        self.beam = beam
        self.prefixes: list[tuple[int, ...]] = [()] * (sentences * beam)

    def step(self, tokens_R: Tensor, position: int, /) -> Tensor:
        """Append the tokens; return the scores of the next."""
        self.prefixes = [(*p, t) for p, t in zip(self.prefixes, tokens_R.tolist(), strict=True)]
        assert len(self.prefixes[0]) == position + 1
        rows = []
        for prefix in self.prefixes:
            source = random.Random(hash((self.seed, *prefix)))
            rows.append([source.gauss(0, 2.0) for _ in range(self.size)])
            rows[-1][self.leaning] += 4.0
        return torch.tensor(rows)

    def reorder(self, rows_R: Tensor, /) -> None:
        """Gather the prefixes."""
        self.prefixes = [self.prefixes[row] for row in rows_R.tolist()]

    def narrow(self, sentences_N: Tensor, /) -> None:
        """Keep some sentences."""
        kept, beam = sentences_N.tolist(), self.beam
        self.prefixes = [one for n in kept for one in self.prefixes[n * beam : (n + 1) * beam]]
        self.rows = len(kept)


def leaves_of(tokens: Sequence[int], length: int, *, words: bool) -> list[Leaf]:
    """Return the words of a toy sentence."""
    return [
        Leaf("NN", VOCABULARIES["top_down"][tokens[i]] if words else "w") for i in range(length)
    ]


@pytest.mark.integration
@EVERY
@given(
    seed=st.integers(0, 9999),
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    beam=st.sampled_from([1, 3]),
    capacity=st.integers(0, 12),
    leaning=st.integers(4, 9),
)
def test_every_output_is_a_tree(
    name: str, seed: int, lengths: list[int], beam: int, capacity: int, leaning: int
) -> None:
    """Every finished hypothesis parses, and all finish, even at the smallest length limit."""
    symbols, form = VOCABULARIES[name], LINEARIZATIONS[name]
    limits = [length + 3 + capacity for length in lengths]
    draw = random.Random(seed)
    words = [[draw.choice([7, 8, 9]) for _ in range(length)] for length in lengths]
    copied = name == "top_down"
    processor = TreeProcessor(
        form,
        symbols,
        lengths,
        limits,
        rows_each=beam,
        eos=EOS,
        special_tokens=(PAD, UNK, BOS),
        words=[[[word] for word in row] for row in words] if copied else None,
    )

    found = beam_search(
        Chance(len(lengths), beam, seed, len(symbols), leaning),
        settings=BeamSearch(beam=beam, nbest=beam, penalty="none"),
        bos=BOS,
        eos=(EOS,),
        pad=PAD,
        max_lengths_N=torch.tensor(limits),
        processor=processor,
    )

    for sentence, hypotheses in enumerate(found):
        sound = [one for one in hypotheses if one.log_probability > -torch.inf]
        assert sound
        for one in sound:
            assert one.finished
            written = [symbols[token] for token in one.tokens]
            leaves = leaves_of(words[sentence], lengths[sentence], words=copied)
            tree = form.read(written, leaves)
            assert len(list(tree.leaves())) == lengths[sentence]
            if copied:
                copies = [symbol for symbol in written if symbol in ("dog", "cat", "runs")]
                assert copies == [leaf.word for leaf in leaves]


def after(name: str, written: str, *, length: int = 2, limit: int = 30) -> set[str]:
    """Return the symbols that are allowed next."""
    symbols = VOCABULARIES[name]
    processor = TreeProcessor(
        LINEARIZATIONS[name],
        symbols,
        [length],
        [limit],
        rows_each=1,
        eos=EOS,
        special_tokens=(PAD, UNK, BOS),
    )
    ids = torch.tensor([[symbols.index(symbol) for symbol in written.split()]]).long()
    allowed = processor(torch.zeros(1, len(symbols)), ids)[0] > -torch.inf
    return {
        symbol for symbol, is_allowed in zip(symbols, allowed.tolist(), strict=True) if is_allowed
    }


OPENINGS = {"(S", "(NP", "(VP"}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        ("", OPENINGS),
        ("(S", OPENINGS | {"XX"}),
        ("(S XX", OPENINGS | {"XX"}),
        ("(S (NP XX", OPENINGS | {"XX", ")NP"}),
        ("(S (NP XX XX", {")NP"}),
        ("(S (NP XX )NP", OPENINGS | {"XX"}),
        ("(S XX XX", {")S"}),
        ("(S XX XX )S", {"</s>"}),
        ("(S " * MAX_UNARY, {"XX"}),
    ],
)
def test_allowed_next_symbols_by_hand(written: str, allowed: set[str]) -> None:
    """A sentence of two words with a large length limit."""
    assert after("vinyals", written) == allowed


@pytest.mark.integration
def test_a_bracket_opens_only_if_it_can_be_closed() -> None:
    """With two words, five symbols allow one bracket, and seven allow two."""
    assert after("vinyals", "(S", limit=5) == {"XX"}
    assert after("vinyals", "(S", limit=6) == {"XX"}
    assert after("vinyals", "(S", limit=7) == OPENINGS | {"XX"}
    with pytest.raises(ValueError, match="over 2 leaves needs 5 symbols"):
        after("vinyals", "", limit=4)


@pytest.mark.integration
def test_bare_labels_and_tags_are_distinguished() -> None:
    """By the closings of the vocabulary; a closing without a label closes any constituent."""
    assert after("tensor2tensor", "S") == {"S", "NP", "NN", "VB", "."}
    assert after("tensor2tensor", "S NN") == {"S", "NP", "NN", "VB", "."}
    assert after("tensor2tensor", "S NN NN") == {"/S"}
    assert after("top_down", "(S dog runs") == {")"}


@pytest.mark.integration
def test_a_tree_of_a_treebank_is_always_allowed() -> None:
    """No gold tree is banned."""
    tree = Tree("TOP", (Tree("S", (Tree("NP", (Leaf("A", "a"),)), Leaf("B", "b"))),))
    written = LINEARIZATIONS["vinyals"].write(tree)

    for place, symbol in enumerate(written):
        assert symbol in after("vinyals", " ".join(written[:place]))
    assert after("vinyals", " ".join(written)) == {"</s>"}


@pytest.mark.integration
def test_a_copied_word_gets_the_probability_of_all_words() -> None:
    """The given word gets the total probability of `dog`, `cat` and `runs`."""
    symbols = VOCABULARIES["top_down"]
    processor = TreeProcessor(
        LINEARIZATIONS["top_down"],
        symbols,
        [1],
        [9],
        rows_each=1,
        eos=EOS,
        special_tokens=(PAD, UNK, BOS, 7, 8, 9),
        words=[[[8]]],
    )
    log_p = torch.tensor([[0.0, 0.1, 0.0, 0.0, 0.2, 0.1, 0.1, 0.3, 0.05, 0.15]]).log()

    found = processor(log_p, torch.tensor([[symbols.index("(S")]]))[0].exp()

    wanted = torch.zeros(10)
    wanted[[4, 5, 8]] = torch.tensor([0.2, 0.1, 0.3 + 0.05 + 0.15])
    torch.testing.assert_close(found, wanted)
