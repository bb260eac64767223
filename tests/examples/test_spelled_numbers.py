"""The spelled-numbers corpus: correct pairs, disjoint splits, reproducible lines."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from weft.examples import spelled_numbers as numbers
from weft.examples.spelled_numbers import Line, make_lines, split_of, write_corpus
from weft.specs.findings import InputError

EXAMPLES = Path(__file__).parents[2] / "examples"
SPLITS = ("train", "valid", "test")
UNITS = ["null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
TEENS = [
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]


@pytest.fixture(scope="module")
def lines() -> dict[str, list[Line]]:
    """Return a small corpus."""
    counts = {"train": 3000, "valid": 300, "test": 300}
    return {split: make_lines(count, split=split, seed=7) for split, count in counts.items()}


def german(value: int) -> str:
    """Spell a whole number below a million, by the rules of German grammar."""
    if value >= 1000:
        rest = german(value % 1000) if value % 1000 else ""
        return below_thousand(value // 1000) + "tausend" + rest
    return below_thousand(value) + ("s" if value % 100 == 1 else "")


def below_thousand(value: int) -> str:
    """Spell the part of a German compound below a thousand, with "ein" for one."""
    hundreds = UNITS[value // 100] + "hundert" if value >= 100 else ""
    value = value % 100 if hundreds else value
    if hundreds and not value:
        return hundreds
    if value < 20:
        return hundreds + (UNITS + TEENS)[value]
    unit = UNITS[value % 10] + "und" if value % 10 else ""
    return hundreds + unit + TENS[value // 10 - 2]


def form(kind: str, example: str = "") -> numbers._Form:
    """Return the first form of a kind; with an example, the one that spells 205 like it."""
    return next(
        f for f in numbers._forms() if f.kind == kind and example in ("", f.spell(205, "en"))
    )


@pytest.mark.parametrize(
    ("kind", "value", "english", "expected"),
    [
        ("cardinal", 1, "one", "eins"),
        ("cardinal", 16, "sixteen", "sechzehn"),
        ("cardinal", 77, "seventy-seven", "siebenundsiebzig"),
        ("cardinal", 101, "one hundred and one", "einhunderteins"),
        ("cardinal", 1234, "one thousand, two hundred and thirty-four",
         "eintausendzweihundertvierunddreißig"),
        ("cardinal", 600_030, "six hundred thousand and thirty", "sechshunderttausenddreißig"),
        ("ordinal", 3, "third", "dritte"),
        ("ordinal", 17, "seventeenth", "siebzehnte"),
        ("ordinal", 21, "twenty-first", "einundzwanzigste"),
        ("ordinal", 108, "one hundred and eighth", "einhundertachte"),
        ("year", 1066, "ten sixty-six", "eintausendsechsundsechzig"),
        ("year", 1805, "eighteen oh-five", "achtzehnhundertfünf"),
        ("year", 2024, "twenty twenty-four", "zweitausendvierundzwanzig"),
        ("decimal", 2105, "twenty-one point zero five", "einundzwanzig Komma null fünf"),
        ("decimal", 150, "one point five", "eins Komma fünf"),
    ],
)  # fmt: skip
def test_values_are_spelled_correctly(kind: str, value: int, english: str, expected: str) -> None:
    """The expected texts are written by hand, one for each irregularity of a language."""
    assert form(kind).spell(value, "en") == english
    assert form(kind).spell(value, "de") == expected


@pytest.mark.parametrize(
    ("value", "english", "expected"),
    [
        (2121, "twenty-one dollars, twenty-one cents",
         "einundzwanzig Dollar und einundzwanzig Cent"),
        (10_000, "one hundred dollars", "einhundert Dollar"),
        (101, "one dollar, one cent", "ein Dollar und ein Cent"),
        (50, "fifty cents", "fünfzig Cent"),
        (123_400, "one thousand, two hundred and thirty-four dollars",
         "eintausendzweihundertvierunddreißig Dollar"),
    ],
)  # fmt: skip
def test_an_amount_omits_zero_parts(value: int, english: str, expected: str) -> None:
    """The text is "fifty euro", not "fifty euro, zero cents"."""
    dollars = form("money", "two dollars, five cents")

    assert dollars.spell(value, "en") == english
    assert dollars.spell(value, "de") == expected


@pytest.mark.integration
def test_german_numbers_follow_the_grammar(lines: dict[str, list[Line]]) -> None:
    """Every drawn whole number agrees with an independent implementation of the grammar."""
    values = {
        v for made in lines.values() for line in made for k, v in line.values if k == "cardinal"
    }

    assert len(values) > 1000
    assert {v: form("cardinal").spell(v, "de") for v in values} == {v: german(v) for v in values}


def test_a_date_is_inflected() -> None:
    """After "am", the ordinal has the dative ending."""
    frames = numbers._date_frames()

    assert len(frames) == 365
    assert ("on the third of May {}", "am dritten Mai {}") in frames
    assert ("on the thirty-first of March {}", "am einunddreißigsten März {}") in frames


@pytest.mark.integration
def test_one_is_not_counted_in_german(lines: dict[str, list[Line]]) -> None:
    """There is no "einhunderteins Menschen" or "sie zahlte ein Euro", which need inflection."""
    texts = [line.target for made in lines.values() for line in made]

    assert not [t for t in texts if "eins Menschen" in t or "eins Meilen" in t]
    assert not [t for t in texts if t.startswith(("Sie zahlte", "Es kostet")) and " ein Cent" in t]


@pytest.mark.integration
def test_splits_share_no_value_and_no_sentence(lines: dict[str, list[Line]]) -> None:
    """A number in a training line occurs in no test line of its kind, whatever the phrase."""
    values = {s: {v for line in made for v in line.values} for s, made in lines.items()}
    sources = {s: {line.source for line in made} for s, made in lines.items()}

    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert not values[one] & values[other]
        assert not sources[one] & sources[other]
    assert all(len(sources[s]) == len(lines[s]) for s in SPLITS)


@pytest.mark.integration
def test_lines_are_short(lines: dict[str, list[Line]]) -> None:
    """Short lines let small models learn the task in minutes."""
    assert max(len(line.source.split()) for made in lines.values() for line in made) <= 25


def test_small_values_are_for_training() -> None:
    """All larger numbers are spelled with their words."""
    assert {split_of("cardinal", value, 3) for value in range(100)} == {"train"}


def test_a_tenth_of_the_values_is_held_out_for_the_test() -> None:
    """The hash is uniform: 1,000 of 10,000 values, within four standard deviations of 30."""
    held_out = sum(split_of("cardinal", value, 3) == "test" for value in range(1000, 11_000))

    assert 880 < held_out < 1120


def test_the_seed_decides_everything() -> None:
    """The same seed gives the same lines; a longer list starts with the shorter one."""
    assert make_lines(50, split="test", seed=1) == make_lines(60, split="test", seed=1)[:50]
    assert make_lines(50, split="test", seed=1) != make_lines(50, split="test", seed=2)


@pytest.mark.integration
def test_the_lines_do_not_depend_on_the_interpreter() -> None:
    """Another hash seed in another process gives the same corpus."""
    code = (
        "from weft.examples.spelled_numbers import make_lines;"
        "print(ascii([x.source for x in make_lines(40, split='valid', seed=5)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "123", "PYTHONPATH": str(EXAMPLES)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == ascii([x.source for x in make_lines(40, split="valid", seed=5)])


def test_a_corpus_is_six_parallel_files(tmp_path: Path) -> None:
    """The files are UTF-8 with one sentence per line and equal numbers of lines."""
    counts = write_corpus(tmp_path / "new", train=30, valid=5, test=0, seed=1)

    assert counts == {"train": 30, "valid": 5, "test": 0}
    for split, count in counts.items():
        for language in ("en", "de"):
            text = (tmp_path / "new" / f"{split}.{language}").read_text(encoding="utf-8")
            assert text.count("\n") == count
            assert all(line == line.strip() != "" for line in text.splitlines())


def test_too_many_lines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exhausted split reports how many lines there are and does not loop forever."""
    few = replace(form("year"), frames=(("in {}", "im Jahr {}"),))
    monkeypatch.setattr(numbers, "_forms", lambda: (few,))
    monkeypatch.setattr(numbers, "PATIENCE", 200)

    with pytest.raises(InputError, match="cannot make 5000000 different lines for test: about"):
        make_lines(5_000_000, split="test", seed=1)


def test_a_negative_count_is_refused() -> None:
    """A negative count raises an error and does not give an empty corpus."""
    with pytest.raises(InputError, match="cannot make -1 lines for valid"):
        make_lines(-1, split="valid", seed=1)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without num2words, the message says how to install it."""
    monkeypatch.setitem(sys.modules, "num2words", None)

    with pytest.raises(InputError, match=r"need the package 'num2words'\n.*weft\[demo\]"):
        form("cardinal").spell(3, "en")
