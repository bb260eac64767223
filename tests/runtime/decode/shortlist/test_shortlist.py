"""Tables of shortlists and the maps that they reduce."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from weft.blocks.kernels import quantized
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.kernels.linear import LinearMap
from weft.blocks.kernels.prepacked import PackedLinear, can_pack, select_outputs
from weft.blocks.kernels.quantized import Int8Linear
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build, build_empty
from weft.runtime.compile.decode_compile import Steps
from weft.runtime.compile.decoder import Passes, decoder_of, use_passes, use_steps
from weft.runtime.data.symbols import Symbols
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.search.constraints import Avoidance
from weft.runtime.decode.settings import BeamSearch, Hypothesis, Sampling
from weft.runtime.decode.shortlist.making import make_shortlist, read_table
from weft.runtime.decode.shortlist.reduced import recurring, reduced_to
from weft.runtime.decode.shortlist.table import Measurement, Shortlist, open_shortlist
from weft.specs.findings import InputError
from weft.specs.load import load

from ..test_active_rows import assert_same

# Ids 0 to 3 are special tokens.
SOURCE = Symbols(["dog", "cat", "Anna"])
TARGET = Symbols(["Hund", "Katze", "Kater", "der", "Anna"])
DOG, CAT, ANNA = 4, 5, 6
HUND, KATZE, KATER, DER, ANNA_TOO = range(4, 9)
WEIGHTS = {(DOG, HUND): 5.0, (DOG, DER): 2.0, (CAT, KATER): 3, (CAT, KATZE): 3, (CAT, DER): 4}
MEASURED = Measurement(
    lines=10, bleu=30.0, bleu_shortlist=29.95, tokens=7.5, weights="w", settings={}
)


def made(**sizes: int) -> Shortlist:
    """Return a shortlist of the weights above."""
    given = {"frequent": 1, "per_token": 2, **sizes}
    frequencies = {DER: 7, HUND: 5, KATZE: 5}
    return make_shortlist(WEIGHTS, frequencies, (SOURCE, TARGET), origin={"from": "test"}, **given)


def measured(**changes: Any) -> Shortlist:
    """Return the shortlist with a measurement."""
    one = made()
    about = {"measured": MEASURED.model_copy(update=changes)}
    return replace(one, about=one.about.model_copy(update=about))


def test_candidates_are_the_best_of_each_source_token() -> None:
    """By hand: the two largest weights, ties to the lowest id, and the same piece as a copy."""
    found = made()

    assert found.starts.tolist() == [0, 0, 0, 0, 0, 2, 4, 5]
    assert found.candidates.tolist() == [HUND, DER, DER, KATZE, ANNA_TOO]
    assert found.frequent.tolist() == [DER]
    assert made(frequent=2, per_token=1).frequent.tolist() == [DER, HUND]
    assert made(frequent=5, per_token=1).frequent.tolist() == [DER, HUND, KATZE, 0, 1]
    assert made(frequent=99, per_token=1).candidates.tolist() == [HUND, DER, ANNA_TOO]
    assert sorted(made(frequent=99).frequent.tolist()) == [*range(9)]
    assert found.about.made == {"from": "test", "frequent": 1, "each": 2}


def test_a_source_allows_the_frequent_tokens_and_its_candidates() -> None:
    """Each source by itself; a repeated token counts once, one beyond the table has nothing."""
    own_NV = made().allowed([[DOG, DOG, 1], [CAT, ANNA, 99], [], [1]], 11)

    assert [row.nonzero()[:, 0].tolist() for row in own_NV] == [
        [HUND, DER],
        [KATZE, DER, ANNA_TOO],
        [DER],
        [DER],
    ]


def test_tables_begin_with_the_source_piece_or_as_marian_does_with_the_target_piece(
    tmp_path: Path,
) -> None:
    """Pieces that are not in a vocabulary are left out; the last line of a pair counts."""
    own, marian = tmp_path / "table", tmp_path / "lex.s2t"
    own.write_text("dog Hund 0.5\n\ndog\tder  0.25\nNULL der 0.5\ncat Hamster 1\ndog Hund 0.75\n")
    marian.write_text("Hund dog 0.75\nder dog 2.5e-1\nder NULL 0.5\nNULL dog 0.5\n</s> dog 1\n")

    expected = {(DOG, HUND): 0.75, (DOG, DER): 0.25}
    assert read_table(str(own), (SOURCE, TARGET), "source") == expected
    assert read_table(str(marian), (SOURCE, TARGET), "target") == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("dog Hund 0.5\ndog Hund\n", "table:2"),
        ("dog Hund viel\n", "table:1"),
        ("dog Hund nan\n", "two pieces and a probability"),
        ("dog Hund -1\n", "two pieces and a probability"),
        ("dog Hund der 0.5\n", "'source-piece target-piece probability'"),
        ("Hund dog 0.5\n", "--lex the target piece"),
        ("", "no line has pieces"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    """With the line, and what to write instead."""
    (tmp_path / "table").write_text(text)

    with pytest.raises(InputError, match=problem):
        read_table(str(tmp_path / "table"), (SOURCE, TARGET), "source")


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Tensors, sizes and measurement."""
    one = measured()

    one.write(tmp_path / "one")
    found = open_shortlist(tmp_path / "one")

    assert found == one
    assert found.about == one.about
    assert (found != made(per_token=1), found != made(frequent=2)) == (True, True)
    assert hash(found) == hash(one)


def test_other_files_are_refused(tmp_path: Path) -> None:
    """Text, tensors of something else, another version, missing tensors, impossible values."""
    (tmp_path / "text").write_text("dog Hund 0.5\n")
    save_file({"weight": torch.zeros(2)}, tmp_path / "weights")
    about = made().about.model_dump(mode="json")
    tensors = {name: getattr(made(), name) for name in ("starts", "candidates", "frequent")}

    def saved(name: str, about: dict[str, Any], **changes: torch.Tensor) -> None:
        metadata = {"weft_shortlist": json.dumps(about)}
        save_file({**tensors, **changes}, tmp_path / name, metadata)

    saved("newer", {**about, "format": 2})
    saved("other", {**about, "colour": "red"})
    saved("floats", about, candidates=torch.zeros(5))
    saved("short", about, candidates=torch.zeros(4, dtype=torch.int32))
    saved("square", about, candidates=torch.zeros(5, 1, dtype=torch.int32))
    saved("mixed", about, starts=torch.tensor([0, 3, 2, 5]))
    saved("negative", about, frequent=torch.tensor([-1], dtype=torch.int32))
    save_file({"starts": tensors["starts"]}, tmp_path / "less", {"weft_shortlist": "{}"})

    for path in (*tmp_path.iterdir(), tmp_path / "missing"):
        with pytest.raises(InputError, match=r"not a shortlist|damaged|has format|no file"):
            open_shortlist(path)


def test_a_shortlist_belongs_to_two_tokenizers() -> None:
    """Their ids mean other pieces elsewhere."""
    measured().refuse_other("list", SOURCE, TARGET, "w")
    with pytest.raises(InputError, match="another source tokenizer"):
        measured().refuse_other("list", TARGET, TARGET, "w")
    with pytest.raises(InputError, match="another target tokenizer"):
        measured().refuse_other("list", SOURCE, SOURCE, "w")
    larger = replace(measured(), frequent=torch.tensor([9], dtype=torch.int32))
    with pytest.raises(InputError, match="damaged"):
        larger.refuse_other("list", SOURCE, TARGET, "w")


def test_a_shortlist_is_measured_with_the_weights_that_use_it() -> None:
    """One that was not, or that loses more than 0.1 BLEU, is refused unless it is unchecked."""
    with pytest.raises(InputError, match="was not measured") as error:
        made().refuse_other("list", SOURCE, TARGET, "w")
    assert "--unchecked" in error.value.help
    with pytest.raises(InputError, match=r"measured with another checkpoint(.|\n)*--unchecked"):
        measured().refuse_other("list", SOURCE, TARGET, "other")
    with pytest.raises(InputError, match=r"loses 0\.11 BLEU"):
        measured(bleu_shortlist=29.89).refuse_other("list", SOURCE, TARGET, "w")
    measured(bleu_shortlist=29.9).refuse_other("list", SOURCE, TARGET, "w")
    measured(bleu_shortlist=31).refuse_other("list", SOURCE, TARGET, "w")
    free = made().about.model_copy(update={"unchecked": True})
    replace(made(), about=free).refuse_other("list", SOURCE, TARGET, "w")


VOCAB = 50
PAD, END, UNKNOWN, BEGIN = range(4)
SPECIAL = SpecialTokens(BEGIN, END, PAD, frozenset({UNKNOWN}))
SMALL = {"vocab": VOCAB, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 2}
TEXTS = ["", "", "", "", *(f" w{number}" for number in range(4, VOCAB))]


class Listed:
    """A list of tokens for each first token of a source."""

    def __init__(self, lists: dict[int, set[int]]) -> None:
        """Store the lists; a source with another first token has all tokens."""
        self.lists = lists

    def allowed(self, sources: Sequence[Sequence[int]], size: int) -> Tensor:
        """Return whether the output of each source may contain each token."""
        known = [self.lists.get(ids[0], set(range(size))) for ids in sources]
        return torch.tensor([[token in one for token in range(size)] for one in known])


LISTS = Listed(
    {
        10: {*range(4, 20)},
        11: {*range(15, 25), 49},
        12: {7, 30, 31, 32, 40},
    }
)


@pytest.fixture
def model() -> nn.Module:
    """Return a small Transformer with clearly different logits."""
    made = build(check(load("transformer-tiny").form, registry(), SMALL)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return made


def requests() -> list[Request]:
    """Return sources of different lengths, one of which has all tokens."""
    return [
        Request([10, 5, 6, 7, 1]),
        Request([11, 9, 1]),
        Request([12, 22, 23, 24, 25, 26, 1]),
        Request([13, 40, 41, 1]),
    ]


def found_in(
    models: Sequence[nn.Module], given: Sequence[Request], settings: BeamSearch
) -> list[list[Hypothesis]]:
    """Return the hypotheses of requests."""
    avoidance = Avoidance(settings.avoid, TEXTS, (END,)) if settings.avoid else None
    return decode_ids(models, given, SPECIAL, settings, avoidance=avoidance)


def by_definition(
    models: Sequence[nn.Module], given: Sequence[Request], settings: BeamSearch
) -> list[list[Hypothesis]]:
    """Return the hypotheses of searches whose other logits are minus infinity."""
    found = []
    for one in given:
        allowed_V = LISTS.allowed([one.source], VOCAB)[0]
        forced = [*one.begin, *(token for phrase in one.include for token in phrase)]
        allowed_V[[*SPECIAL[:3], *SPECIAL.never, *forced]] = True

        def hook(_: nn.Module, __: Any, logits: Tensor, allowed_V: Tensor = allowed_V) -> Tensor:
            return logits.masked_fill(~allowed_V, -torch.inf)

        hooks = [model.get_submodule("head").register_forward_hook(hook) for model in models]
        for model in models:
            vars(model).pop("_decoder", None)
        found += found_in(models, [one], settings)
        for handle in hooks:
            handle.remove()
    for model in models:
        vars(model).pop("_decoder", None)
    return found


def settings_of(search: dict[str, Any], *, max_extra: int, nbest: int = 2) -> BeamSearch | Sampling:
    """Return the settings of a search, or of sampling."""
    if "samples" in search:
        return Sampling(max_extra=max_extra, **search)
    return BeamSearch(**{"nbest": nbest, "max_extra": max_extra, **search})


SEARCHES = pytest.mark.parametrize(
    "search",
    [
        {"beam": 1, "nbest": 1},
        {"beam": 4, "nbest": 4},
        {"beam": 4, "groups": 2, "nbest": 3},
        {"beam": 3, "ends": "best", "min_length": 4},
        {"beam": 2, "no_repeat": 1, "repetition_penalty": 1.2},
        {"beam": 3, "avoid": ("w16", "w31", "w5 w6")},
        {"samples": 3, "temperature": 1.5},
        {"samples": 2, "top_k": 3, "top_p": 0.9},
    ],
    ids=["greedy", "beam", "groups", "best", "repeats", "avoid", "sample", "truncated"],
)


@pytest.mark.integration
@SEARCHES
def test_every_search_in_a_list_is_one_with_infinite_logits_outside(
    model: nn.Module, search: dict[str, Any]
) -> None:
    """Four sentences with lists of their own, decoded together, one of them with all tokens."""
    settings = settings_of(search, max_extra=3)
    expected = by_definition([model], requests(), settings)
    plain = found_in([model], requests(), settings)

    use_passes(model, Passes(shortlist=LISTS))
    found = found_in([model], requests(), settings)

    assert_same(found, expected)
    assert [row[0].tokens for row in found[:3]] != [row[0].tokens for row in plain[:3]]
    assert_same(found[3:], plain[3:])


@pytest.mark.integration
@SEARCHES
def test_a_list_of_all_tokens_changes_nothing(model: nn.Module, search: dict[str, Any]) -> None:
    """Every number is the same, to the last bit."""
    settings = settings_of(search, max_extra=3)
    plain = found_in([model], requests(), settings)

    use_passes(model, Passes(shortlist=Listed({})))

    assert found_in([model], requests(), settings) == plain


@pytest.mark.integration
@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 4}, {"samples": 4}])
def test_tokens_that_a_request_forces_are_in_its_list(
    model: nn.Module, search: dict[str, Any]
) -> None:
    """Prefixes and phrases of tokens outside of the lists are written as without a shortlist."""
    settings = settings_of(search, nbest=1, max_extra=6)
    begun = [Request([10, 5, 6, 7, 1], begin=[33, 5]), Request([11, 9, 1], begin=[48])]
    holding = [
        Request([12, 22, 23, 1], begin=[7], include=[[44, 45]]),
        Request([10, 8, 1], include=[[33], [6, 34]]),
    ]
    expected = [by_definition([model], given, settings) for given in (begun, holding)]

    use_passes(model, Passes(shortlist=LISTS))
    found = [found_in([model], given, settings) for given in (begun, holding)]

    assert_same(found[0], expected[0])
    assert_same(found[1], expected[1])
    assert found[0][0][0].tokens[:2] == (33, 5)
    assert {33, 6, 34} <= {*found[1][1][0].tokens}


@pytest.mark.integration
def test_models_of_an_ensemble_share_a_list(model: nn.Module) -> None:
    """Each model's probabilities are normalized over the list, and then averaged."""
    other = build(check(load("transformer-tiny").form, registry(), SMALL), seed=2).eval()
    settings = BeamSearch(beam=2, max_extra=3)
    expected = by_definition([model, other], requests(), settings)

    use_passes(model, Passes(shortlist=LISTS))
    with pytest.raises(InputError, match="different shortlists"):
        found_in([model, other], requests(), settings)
    use_passes(other, Passes(shortlist=LISTS))

    assert_same(found_in([model, other], requests(), settings), expected)


def test_an_output_does_not_depend_on_the_batch(model: nn.Module) -> None:
    """Each sentence has its own list, whatever the others need."""
    use_passes(model, Passes(shortlist=LISTS))
    settings = BeamSearch(beam=3, nbest=3, max_extra=3)

    together = found_in([model], requests(), settings)

    assert_same(together, [found_in([model], [one], settings)[0] for one in requests()])


@pytest.mark.needs("prepacking")
def test_only_the_selected_rows_are_multiplied(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step computes as many logits as the list has tokens, and the matrix is packed once."""
    widths, packed = list[int](), list[int]()
    multiply, pack = PackedLinear.multiply, PackedLinear.pack

    def counted(self: PackedLinear, x: Tensor) -> Tensor:
        widths.append(self.out_features)
        return multiply(self, x)

    def counted_packing(self: PackedLinear, maps: Sequence[Any]) -> Any:
        packed.append(self.out_features)
        return pack(self, maps)

    monkeypatch.setattr(PackedLinear, "multiply", counted)
    monkeypatch.setattr(PackedLinear, "pack", counted_packing)
    use_passes(model, Passes(shortlist=LISTS))

    found_in([model], requests()[2:3], BeamSearch(beam=2, max_extra=3, min_length=4))

    # Five tokens, four special ones and one that makes the size recur: ten.
    assert widths.count(10) >= 5
    assert packed.count(10) == 1
    assert VOCAB not in widths + packed


@pytest.mark.usefixtures("int8")
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    "passes",
    [{}, {"without": frozenset({"prepack"})}, {"quantize": "int8"}],
    ids=["prepacked", "plain", "int8"],
)
def test_every_kind_of_output_projection_selects_its_rows(
    model: nn.Module, passes: dict[str, Any], half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits are those of the complete product, in every precision."""
    monkeypatch.setattr(quantized, "LEAST", dict.fromkeys(quantized.LEAST, 1))
    use_passes(model, Passes(shortlist=LISTS, **passes))
    dtype = torch.bfloat16 if half else torch.float32
    ids = torch.tensor([0, 1, 3, 9, 33, 49])
    source = torch.tensor([[10, 5, 6, 1]])
    fixed = {"source": source, "source_mask": source > 0}
    target = torch.tensor([[3, 7, 8]])

    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half):
        made: Any = decoder_of(model).module(model, dtype)
        found = []
        for candidates in (None, ids):
            place = Capacity(1, 1, 3, dtype, torch.device("cpu"), candidates=candidates)
            state = made.begin(place, **fixed)
            found.append(made.step(target=target, state=state, position=0)["logits"])

    assert found[0].shape == (1, 3, VOCAB)
    torch.testing.assert_close(found[1], found[0][..., ids], rtol=1e-2 if half else 1e-5, atol=1e-5)
    head = made.get_submodule("head")
    packs = "without" not in passes and can_pack(dtype)
    rounds = passes.get("quantize") == "int8"
    assert isinstance(head, Int8Linear if rounds else PackedLinear if packs else LinearMap)


def test_a_bias_is_selected_with_its_rows() -> None:
    """By the definition of a linear map, in float64."""
    whole = LinearMap(3, 4).double()
    ids, x = torch.tensor([3, 1]), torch.rand(2, 3, dtype=torch.float64)

    with torch.no_grad():
        found = select_outputs(whole, ids)(x)
        expected = torch.stack([x @ whole.weight[i] + whole.bias[i] for i in (3, 1)], 1)

    torch.testing.assert_close(found, expected)
    assert select_outputs(whole, None) is whole


def test_compiled_steps_are_not_compiled_again_for_each_batch(model: nn.Module) -> None:
    """The pass compiles layers, which have nothing of the shortlist."""
    use_steps(model, Steps("on"))
    use_passes(model, Passes(shortlist=LISTS))

    with torch.inference_mode():
        made = decoder_of(model).module(model, torch.float32)

    assert [path for path, one in made.named_modules() if hasattr(one, "_compiled_steps")]
    assert not type(made).__name__.startswith("Compiled")


def test_the_reduced_vocabulary_has_a_size_that_recurs() -> None:
    """The union of the lists, and unused tokens up to a size of which an octave has four."""
    own_NV = torch.zeros(2, 30, dtype=torch.bool)
    own_NV[0, [3, 20]] = True
    own_NV[1, [3, 5, 7, 11, 13, 17, 19, 29]] = True

    reduced = reduced_to(own_NV)

    assert reduced.ids.tolist() == [0, 3, 5, 7, 11, 13, 17, 19, 20, 29]
    assert reduced.listed is not None
    assert reduced.listed[0].nonzero()[:, 0].tolist() == [1, 8]
    assert reduced.listed[1].nonzero()[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 9]
    assert [recurring(count, 9999) for count in (1, 8, 9, 11, 16, 17, 1025)] == [
        1, 8, 10, 12, 16, 20, 1280,
    ]  # fmt: skip
    assert recurring(1025, 1100) == 1100


def test_a_model_in_training_has_no_shortlist(model: nn.Module) -> None:
    """As it has no other pass of decoding."""
    settings = BeamSearch(beam=2, max_extra=3)
    model.train()
    torch.manual_seed(1)
    plain = found_in([model], requests(), settings)
    use_passes(model, Passes(shortlist=LISTS))
    torch.manual_seed(1)

    assert found_in([model], requests(), settings) == plain


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("vit", "does not decode step by step"),
        ("parsing-pointer", "not those of a linear map"),
        ("transformer-tiny", "are for models on the CPU"),
    ],
)
def test_models_that_cannot_have_a_shortlist_are_refused(name: str, problem: str) -> None:
    """One without steps, one whose logits are no linear map, and one on another device."""
    device = "meta" if name == "transformer-tiny" else "cpu"
    model = build_empty(check(load(name).form, registry()), device=device)

    with pytest.raises(InputError, match=problem):
        use_passes(model, Passes(shortlist=LISTS))
