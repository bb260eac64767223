"""Columns: what they read, their noise, and lengths that fit axes."""

from __future__ import annotations

import io
import json
import math
import wave
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import weft
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from weft.graphs.ir.value_type import ValueType, parse_type
from weft.runtime.data.columns.column import Column
from weft.runtime.data.columns.column_settings import NumberSettings
from weft.runtime.data.columns.fitting import Fitting
from weft.runtime.data.columns.noise import (
    CaseNoise,
    DropNoise,
    Noise,
    NoiseSettings,
    ReplaceNoise,
    SwapNoise,
    TagNoise,
    TypoNoise,
    with_noise,
)
from weft.runtime.data.columns.registry import COLUMNS, columns_of
from weft.runtime.data.prepare import prepare
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.symbols import Symbols
from weft.runtime.data.table import batch_of
from weft.runtime.data.table_settings import DataSettings
from weft.runtime.data.tokenizer import Tokenizer, train_tokenizer
from weft.runtime.system.plugins import implementation_of
from weft.specs.findings import InputError

from ..pairs import bpe, lines, pairs

SETTINGS = "weft.runtime.data.columns.column_settings"
PIXELS = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)


def column(settings: dict[str, Any], tokenizer: Tokenizer | None = None) -> dict[str, Column]:
    """Return a column named `x`."""
    known = COLUMNS.parse(settings, "")
    return columns_of({"x": known}, {} if tokenizer is None else {"text": tokenizer})


def sound(path: Path, samples: np.ndarray[Any, Any], rate: int = 16_000, channels: int = 1) -> Path:
    """Write a wav file of 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    """Return a tokenizer of a few words."""
    lines = ["one two three four five six seven eight nine ten", "eleven twelve thirteen"] * 60
    settings = PieceSettings(vocab_size=30, type=request.param)
    return train_tokenizer(lines, settings, tmp_path_factory.mktemp("t") / "t.model")


@pytest.mark.parametrize("name", COLUMNS.names())
def test_every_type_of_settings_has_a_column(name: str) -> None:
    """A type without a class could be written but not prepared."""
    settings = COLUMNS.find(name).model_construct()

    assert issubclass(implementation_of(settings, Column), Column)


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("nowhere_of_test:Column", "'nowhere_of_test:Column' cannot be imported: ModuleNotFound"),
        (".number:Colunm", "'.number:Colunm' cannot be imported: AttributeError"),
        ("pathlib:Path", "'pathlib:Path' is not a subclass of weft.runtime.data.columns.column"),
    ],
)
def test_settings_with_a_wrong_module_are_named(module: str, problem: str) -> None:
    """A package's settings are read long before its column is imported."""
    broken = type("Broken", (NumberSettings,), {"module": module, "__module__": SETTINGS})

    with pytest.raises(InputError, match=problem) as caught:
        columns_of({"x": broken()}, {})

    assert caught.value.location == f"{SETTINGS}.Broken"


def test_begin_and_end_tokens_surround_each_text(tokenizer: Tokenizer) -> None:
    """Beginning is 3, end is 1, padding is 0; the column without them has the ids alone."""
    ids = [tokenizer.encode(text) for text in ("one", "two three")]
    values = [{"x": "one"}, {"x": "two three"}]
    text = {"type": "text", "tokenizer": "text"}

    both = batch_of(column({**text, "begin": True}, tokenizer), values).inputs["x"].tolist()
    none = batch_of(column({**text, "end": False}, tokenizer), values).inputs["x"].tolist()

    space = [0] * (len(ids[1]) - len(ids[0]))
    assert both == [[3, *ids[0], 1, *space], [3, *ids[1], 1]]
    assert none == [[*ids[0], *space], ids[1]]


def test_a_long_text_is_cut_with_its_end_token(tokenizer: Tokenizer) -> None:
    """`max_length` counts begin and end tokens."""
    settings = {"type": "text", "tokenizer": "text", "max_length": 4, "begin": True}
    ids = tokenizer.encode("three four five")

    batch = batch_of(column(settings, tokenizer), [{"x": "three four five"}])

    assert batch.inputs["x"].tolist() == [[3, *ids[:2], 1]]


def test_sampled_texts_are_determined_by_seed_epoch_and_row(tokenizer: Tokenizer) -> None:
    """Another epoch splits otherwise, the same one alike; the text stays the same."""
    text = "one two three four five six seven eight nine ten"
    seeds = [tokenizer.sample(text, 0.3, seed) for seed in (1, 2, 1)]

    assert seeds[0] == seeds[2] != seeds[1]
    assert all(tokenizer.decode(ids) == text for ids in seeds)


@pytest.mark.parametrize("value", [None, 3, ["a"]])
def test_a_text_must_be_a_text(tokenizer: Tokenizer, value: Any) -> None:
    """Null in JSON Lines is an error, not the text 'None'."""
    columns = column({"type": "text", "tokenizer": "text"}, tokenizer)

    with pytest.raises(InputError, match="not a text"):
        batch_of(columns, [{"x": value}])


@pytest.mark.parametrize("settings", [{"type": "text", "tokenizer": "text"}, {"type": "class"}])
def test_half_of_a_surrogate_pair_is_no_character(
    tokenizer: Tokenizer, settings: dict[str, Any]
) -> None:
    r"""JSON can write it, as "\ud83d", but no file in UTF-8 can have it."""
    with pytest.raises(InputError, match="half of a surrogate pair"):
        batch_of(column(settings, tokenizer), [{"x": "one \ud83d"}])


@pytest.mark.parametrize("settings", [{"type": "class"}, {"type": "tags", "of": "text"}])
def test_classes_are_different(settings: dict[str, Any]) -> None:
    """Of two equal ones, the first would never be used."""
    with pytest.raises(InputError, match="the class 'a' is already defined"):
        column({**settings, "classes": ["a", "b", "a"]})


def test_a_missing_value_is_named() -> None:
    """The place is the row."""
    with pytest.raises(InputError, match="no value for the column 'x'") as caught:
        batch_of(column({"type": "number"}), [{"x": 1}, {"y": 2}])

    assert caught.value.location == "row 1"


def test_classes_have_the_given_order() -> None:
    """Numbers and truth values are classes too."""
    columns = column({"type": "class", "classes": ["b", "a", "1", "True"]})

    batch = batch_of(columns, [{"x": one} for one in ("a", " b ", 1, True)])

    assert batch.inputs["x"].tolist() == [1, 0, 2, 3]
    assert columns["x"].decode(1) == "a"


class Characters(Tokenizer):
    """A tokenizer of which no piece begins a word."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id without the mark of a word."""
        return [piece.replace("\u2581", "") for piece in super().pieces(ids)]


def tagged(vocabulary: Any) -> dict[str, Column]:
    """Return a column of words, and one of their tags."""
    settings = {
        "words": {"type": "text", "tokenizer": "text"},
        "tags": {"type": "tags", "of": "words", "classes": ["N", "V"]},
    }
    known = {key: COLUMNS.parse(one, "") for key, one in settings.items()}
    return columns_of(known, {"text": vocabulary})


def test_each_symbol_has_a_tag() -> None:
    """Symbols are words; the end token has none."""
    batch = batch_of(tagged(Symbols(["a", "b"])), [{"words": "a b", "tags": "V N"}])

    assert batch.inputs["tags"].tolist() == [[1, 0, -1]]


def test_tags_need_pieces_that_begin_words(tmp_path: Path) -> None:
    """All labels would be -1, and nothing would train."""
    train_tokenizer(["a b ab ba"] * 9, PieceSettings(vocab_size=8), tmp_path / "t.model")
    characters = Characters((tmp_path / "t.model").read_bytes())

    with pytest.raises(InputError, match="no piece of the tokenizer 'text' begins a word"):
        batch_of(tagged(characters), [{"words": "a b", "tags": "N N"}])


@pytest.mark.parametrize("value", ["x", "", None, "nan", "1e99", "1_0", 10**400, True, math.inf])
def test_a_number_must_be_finite(value: Any) -> None:
    """A value that is not finite would make all weights NaN."""
    with pytest.raises(InputError, match="not a finite number"):
        batch_of(column({"type": "number"}), [{"x": value}])


def test_images_are_normalized_by_channel() -> None:
    """By hand: (value / 255 - mean) / std."""
    settings = {"type": "image", "size": [3, 2, 2], "mean": [0, 0.5, 0], "std": [1, 0.5, 2]}

    found = batch_of(column(settings), [{"x": PIXELS}]).inputs["x"][0]

    assert found.shape == (3, 2, 2)
    assert found[0, 0, 1].item() == pytest.approx(1 / 255)
    assert found[1, 0, 0].item() == pytest.approx((4 / 255 - 0.5) / 0.5)
    assert found[2, 1, 1].item() == pytest.approx(11 / 255 / 2)


def test_image_files_have_their_channels_first(tmp_path: Path) -> None:
    """PNG stores rows of pixels; the model takes channels first.  An array file is used as is."""
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.moveaxis(PIXELS, 0, -1)).save(tmp_path / "a.png")
    np.save(tmp_path / "a.npy", PIXELS)
    columns = column({"type": "image", "size": [3, 2, 2]})

    batch = batch_of(columns, [{"x": tmp_path / "a.png"}, {"x": tmp_path / "a.npy"}])

    assert batch.inputs["x"][0].equal(batch.inputs["x"][1])
    assert (batch.inputs["x"][0] * 255).round().int().tolist() == PIXELS.tolist()


def test_an_image_of_another_size_is_refused(tmp_path: Path) -> None:
    """The message names the file and both sizes."""
    np.save(tmp_path / "a.npy", PIXELS)

    with pytest.raises(InputError, match=r"size \[3 2 2\], not \[3 4 4\]") as caught:
        batch_of(column({"type": "image", "size": [3, 4, 4]}), [{"x": tmp_path / "a.npy"}])

    assert caught.value.location == str(tmp_path / "a.npy")


def test_a_damaged_image_is_refused(tmp_path: Path) -> None:
    """Both for arrays and for image files."""
    pytest.importorskip("PIL.Image")
    columns = column({"type": "image", "size": [3, 2, 2]})
    for name in ("a.npy", "a.png"):
        (tmp_path / name).write_bytes(b"nonsense")
        with pytest.raises(InputError, match="cannot be read") as caught:
            batch_of(columns, [{"x": tmp_path / name}])
        assert caught.value.location == str(tmp_path / name)


def test_an_image_file_of_16_bits_is_refused(tmp_path: Path) -> None:
    """Pillow would clip its values to 255, which makes nearly every image white."""
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.full((2, 2), 1000, np.uint16)).save(tmp_path / "a.png")

    with pytest.raises(InputError, match="more than 8 bits"):
        batch_of(column({"type": "image", "size": [1, 2, 2]}), [{"x": tmp_path / "a.png"}])


@pytest.mark.parametrize("value", [[[[1, 2], [3]]], [[[1, 2], [3, 300]]], [[["a", 2], [3, 4]]]])
def test_an_image_of_other_than_numbers_is_refused(value: Any) -> None:
    """Rows of several lengths, numbers out of range, and texts."""
    with pytest.raises(InputError, match="is not an array of uint8"):
        batch_of(column({"type": "image", "size": [1, 2, 2]}), [{"x": value}])


@pytest.mark.parametrize(
    "value", [["a"], [[1.0], [1.0, 2.0]], {"array": [0.5], "sampling_rate": "fast"}]
)
def test_audio_of_other_than_numbers_is_refused(value: Any) -> None:
    """As a service may receive it."""
    with pytest.raises(InputError, match="is not an array of samples"):
        batch_of(column({"type": "audio"}), [{"x": value}])


def test_audio_is_padded_with_a_mask(tmp_path: Path) -> None:
    """Samples of 16 bits are exact; the mask is true for samples."""
    pytest.importorskip("soundfile")
    files = [
        sound(tmp_path / "a.wav", np.array([0, 16384, -32768])),
        sound(tmp_path / "b.wav", np.array([1])),
    ]
    columns = column({"type": "audio"})

    batch = batch_of(columns, [{"x": path} for path in files])

    assert batch.inputs["x"].tolist() == [[0, 0.5, -1], [1 / 32768, 0, 0]]
    assert batch.inputs["x_mask"].tolist() == [[True] * 3, [True, False, False]]
    assert batch.tokens == {"x": 4, "x_mask": 4}
    assert str(columns["x"].inputs["x_mask"]) == "mask[B x]"


def test_a_truncated_wav_file_is_refused(tmp_path: Path) -> None:
    """Libraries return the samples that are there, without an error."""
    pytest.importorskip("soundfile")
    path = sound(tmp_path / "a.wav", np.arange(100))
    path.write_bytes(path.read_bytes()[:-30])

    with pytest.raises(InputError, match="truncated: it has 170 of 200 bytes") as caught:
        batch_of(column({"type": "audio"}), [{"x": path}])

    assert caught.value.location == str(path)


@pytest.mark.parametrize("suffix", ["wav", "flac"])
def test_audio_of_another_rate_or_form_is_refused(tmp_path: Path, suffix: str) -> None:
    """Audio is not resampled or mixed silently."""
    library = pytest.importorskip("soundfile")
    columns = column({"type": "audio"})
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, (4000, 2))
    cases = [
        (samples[:, 0], 8000, "8000 samples per second, not 16000"),
        (samples, 16_000, "2 channels"),
    ]
    for number, (content, rate, problem) in enumerate(cases):
        path = tmp_path / f"{number}.{suffix}"
        library.write(path, content, rate)
        with pytest.raises(InputError, match=problem) as caught:
            batch_of(columns, [{"x": path}])
        assert caught.value.location == str(path)


def test_a_truncated_flac_file_is_refused(tmp_path: Path) -> None:
    """A part of the audio must not pass for all of it."""
    library = pytest.importorskip("soundfile")
    content = io.BytesIO()
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 40_000)
    library.write(content, samples, 16_000, format="flac")
    path = tmp_path / "a.flac"
    path.write_bytes(content.getvalue()[: len(content.getvalue()) // 2])

    with pytest.raises(InputError, match=r"truncated|cannot be read"):
        batch_of(column({"type": "audio"}), [{"x": path}])


WORDS = [f"w{number}" for number in range(400)]
TEXT = " ".join(WORDS)


def drawn(kind: NoiseSettings, text: str, seed: int = 0) -> str:
    """Return a text with one kind of noise."""
    return kind.changed(text, np.random.default_rng(seed))


def test_case_and_tags_of_every_text_by_hand() -> None:
    """With the probability 1; a probability of 1/2 changes about half of the texts."""
    assert drawn(CaseNoise(rate=1.0), "The DOG") == "the dog"
    assert drawn(CaseNoise(rate=1.0, to="upper"), "The dog") == "THE DOG"
    assert drawn(TagNoise(text="<b>"), "the dog") == "<b> the dog"
    tagged = [drawn(TagNoise(text="<b>", rate=0.5), "x", seed) for seed in range(400)]
    assert 150 < tagged.count("<b> x") < 250


@given(st.integers(1, 9), st.integers(0, 99))
def test_words_move_at_most_by_the_distance(distance: int, seed: int) -> None:
    """And none is lost."""
    moved = drawn(SwapNoise(distance=distance), TEXT, seed).split()

    assert sorted(moved) == sorted(WORDS)
    assert moved != WORDS
    assert max(abs(moved.index(word) - at) for at, word in enumerate(WORDS)) <= distance


def test_words_are_dropped_and_replaced_as_often_as_the_rate_says() -> None:
    """What remains is in order; a text keeps a word."""
    remaining = drawn(DropNoise(rate=0.25), TEXT).split()
    filled = drawn(ReplaceNoise(rate=0.25, by="_"), TEXT).split()

    assert 270 < len(remaining) < 330
    assert remaining == [word for word in WORDS if word in remaining]
    assert 70 < filled.count("_") < 130
    assert all(new in ("_", old) for new, old in zip(filled, WORDS, strict=True))
    assert all(drawn(DropNoise(rate=0.99), "a b", seed) in ("a", "b") for seed in range(50))


def test_typos_drop_double_and_exchange_letters() -> None:
    """Of a word of two letters, all outcomes are known; digits stay, and words remain words."""
    once = {drawn(TypoNoise(rate=0.3), "ab", seed) for seed in range(300)}

    assert once >= {"ab", "ba", "a", "b", "aab", "abb"}
    assert "" not in once
    assert drawn(TypoNoise(rate=1.0), "12 3") == "12 3"
    text = "tree " * 200
    changed = drawn(TypoNoise(rate=0.1), text).split()
    assert len(changed) == 200
    assert 40 < sum(word != "tree" for word in changed) < 100


def test_noise_depends_on_seed_epoch_row_and_column_alone() -> None:
    """And on the source of the row."""
    kinds = (SwapNoise(), TagNoise(text="<b>", sources=("back",)))
    sources = {"real": 5, "back": 3}
    first = with_noise(TEXT, kinds, Noise(1, 2, sources), 4, "source")

    assert first == with_noise(TEXT, kinds, Noise(1, 2, sources), 4, "source")
    others = [
        with_noise(TEXT, kinds, Noise(seed, epoch, sources), row, column)
        for seed, epoch, row, column in (
            (0, 2, 4, "source"),
            (1, 1, 4, "source"),
            (1, 2, 3, "source"),
            (1, 2, 4, "target"),
        )
    ]
    assert first not in others
    assert not first.startswith("<b>")
    assert with_noise("x", kinds, Noise(1, 2, sources), 5, "source") == "<b> x"


@pytest.fixture
def data(tmp_path: Path) -> Callable[..., DataSettings]:
    """Return a factory of data whose column `source` has noise."""
    (tmp_path / "a").write_text("sun moon star\nmoon star\nstar sun moon sun\n")

    def made(*noise: dict[str, Any]) -> DataSettings:
        split = {"sources": {"x": lines(["a"], ["a"]), "back": lines(["a"], ["a"])}}
        settings = pairs(tmp_path, split, lines(["a"], ["a"]))
        value = json.loads(settings.model_dump_json(by_alias=True))
        value["columns"]["source"]["noise"] = list(noise)
        return DataSettings.model_validate_json(json.dumps(value))

    return made


@pytest.mark.integration
def test_batches_have_noise_in_training_and_none_in_validation(
    data: Callable[..., DataSettings], tmp_path: Path
) -> None:
    """The same rows as with the changed texts in the files; another noise prepares nothing."""
    messages: list[str] = []
    upper = {"type": "case", "to": "upper", "rate": 1.0, "sources": ["back"]}

    swapped = prepare(data({"type": "swap"}), bpe(24), tmp_path / "out", log=messages.append)
    made = prepare(data(upper), bpe(24), tmp_path / "out", log=messages.append)

    assert not messages
    assert swapped.digest == made.digest
    rows = np.arange(6)
    vocabulary = made.vocabularies["tokenizer"]
    texts = ["sun moon star", "moon star", "star sun moon sun"]
    wanted = [vocabulary.encode(text) for text in (*texts, *(text.upper() for text in texts))]
    inputs = made.train.collate(rows, noise=(1, 0))
    found = [[i for i in row if i not in (0, 1)] for row in inputs["source"].tolist()]
    assert found == wanted
    assert inputs["target"].equal(made.train.collate(rows)["target"])
    clean = [
        [i for i in row if i not in (0, 1)] for row in made.train.collate(rows)["source"].tolist()
    ]
    assert clean == [vocabulary.encode(text) for text in (*texts, *texts)]
    sizes = made.train.sampled_lengths(rows, (1, 0))["source"].tolist()
    assert sizes == [len(ids) + 1 for ids in wanted]


def test_words_with_tags_do_not_move() -> None:
    """A tag would stand at another word; typos leave words where they are."""
    text = {"type": "text", "tokenizer": "t"}
    value = {
        "columns": {"text": text, "tags": {"type": "tags", "of": "text"}},
        "train": {"jsonl": {"files": ["a"]}},
        "valid": {"jsonl": {"files": ["a"]}},
    }
    value["columns"]["text"] = {**text, "noise": [{"type": "typos", "rate": 0.1}]}
    DataSettings.model_validate_json(json.dumps(value))
    value["columns"]["text"] = {**text, "noise": [{"type": "drop", "rate": 0.1}]}
    with pytest.raises(ValueError, match="words cannot move"):
        DataSettings.model_validate_json(json.dumps(value))


AXES = {"B": "batch", "S": "time", "T": "time"}
DTYPES = {"ids": torch.int64, "label": torch.int64, "mask": torch.bool, "f": torch.float32}


def fitting(types: dict[str, str], columns: dict[str, str] | None = None) -> Fitting:
    """Return what inputs of these types require.

    Args:
        types: type of each input.
        columns: time axis of the column that fills each input; default: one of its own.
    """
    inputs = {name: parse_type(text, {}, AXES)[0] for name, text in types.items()}
    graph: Any = SimpleNamespace(inputs=inputs, spec=SimpleNamespace(axes=AXES))
    filled = {
        name: ValueType(type_.kind, ("B", (columns or {}).get(name, name)))
        for name, type_ in inputs.items()
    }
    return Fitting.of(graph, filled)


def padded(types: dict[str, str], lengths: dict[str, int], **columns: str) -> dict[str, Tensor]:
    """Return inputs of ones with these lengths, after they are padded."""
    requirements = fitting(types, columns)
    assert not list(requirements.problems())
    inputs = {
        name: torch.ones(2, length, dtype=DTYPES[types[name].partition("[")[0].partition(":")[0]])
        for name, length in lengths.items()
    }
    return requirements.fit(inputs)


@pytest.mark.parametrize(
    ("axis", "length", "wanted"),
    [("S", 3, 3), ("4*S", 5, 8), ("4*S", 4, 4), ("S+1", 1, 2), ("S+1", 7, 7), ("4*S+1", 6, 9)],
)
def test_an_input_is_padded_to_the_next_length_of_its_axis(
    axis: str, length: int, wanted: int
) -> None:
    """Axes are at least 1, so `S+1` begins at 2."""
    assert padded({"x": f"ids:9[B {axis}]"}, {"x": length})["x"].size(1) == wanted


def test_padding_is_what_each_kind_calls_padding() -> None:
    """Masks are false there, labels -1, and ids the padding id."""
    types = {"ids": "ids:9[B 2*S]", "m": "mask[B 2*S]", "y": "label:3[B 2*S]", "x": "f[B 2*S]"}

    found = padded(types, dict.fromkeys(types, 1), ids="c", m="c", y="c", x="c")

    assert {name: row[0, 1].item() for name, row in found.items()} == {
        "ids": 0,
        "m": False,
        "y": -1,
        "x": 0.0,
    }


def test_one_column_on_two_axes_is_padded_to_a_common_multiple() -> None:
    """A length that is a multiple of 4 and of 6 is one of 12."""
    types = {"x": "f[B 4*S]", "x_mask": "mask[B 6*T]"}

    found = padded(types, {"x": 13, "x_mask": 13}, x="x", x_mask="x")

    assert [one.size(1) for one in found.values()] == [24, 24]


@given(st.integers(1, 40), st.integers(1, 40))
def test_columns_that_share_an_axis_are_padded_to_lengths_that_belong_together(
    x: int, y: int
) -> None:
    """Lengths `3*S` and `S+2` for the same S; the least S that has room for both."""
    found = padded({"x": "ids:9[B 3*S]", "y": "ids:9[B S+2]"}, {"x": x, "y": y})

    size = next(size for size in range(1, 99) if 3 * size >= x and size + 2 >= y)
    assert (found["x"].size(1), found["y"].size(1)) == (3 * size, size + 2)


@pytest.mark.parametrize(
    ("types", "name"),
    [
        ({"x": "f[B 4*S]", "x_mask": "mask[B 2*S]"}, "x_mask"),
        ({"x": "f[B 2*S]", "x_mask": "mask[B 2*T+1]"}, "x_mask"),
        ({"x": "ids:9[B S+T]"}, "x"),
        ({"x": "ids:9[B 9-S]"}, "x"),
    ],
)
def test_axes_that_no_length_fits_are_named(types: dict[str, str], name: str) -> None:
    """They would fail in the first update, or pad without end."""
    problems = list(fitting(types, dict.fromkeys(types, "x")).problems())

    assert [one for one, _ in problems] == [name]


def test_what_is_longer_than_a_fixed_axis_is_refused() -> None:
    """`ids[B 5]` takes 5 positions."""
    assert padded({"x": "ids:9[B 5]"}, {"x": 3})["x"].tolist() == [[1, 1, 1, 0, 0]] * 2
    with pytest.raises(weft.InputError, match="'x' has 7 positions, but its axis has 5"):
        padded({"x": "ids:9[B 5]"}, {"x": 7})
