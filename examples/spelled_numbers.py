"""Spelled-out numbers: a small generated English-German translation task.

Each line is a number, an ordinal, a year, a date, an amount of money or a decimal, spelled by
the num2words library in both languages and usually set in a short phrase ("for the twenty-first
time", "zum einundzwanzigsten Mal").  The task needs no data file, and a small model learns it in
minutes.  It is still real translation: word order, compounds and German endings differ from
English.

Training, validation and test lines are disjoint by value: a hash of (seed, kind, value) assigns
every value of at least 100 to one of the three, so a number in a test line occurs in no training
line of the same kind, whatever the phrase.  Values below 100 are always in the training set,
because all larger numbers are spelled with their words.  A date counts as its year.

The following values are excluded because num2words 0.5 spells them wrongly or unnaturally:

- German thousands that end in 01 (101,000 gives "einhunderteinstausend");
- negative decimals: those above -1 lose their sign, such as -0.7;
- years before 1000 ("einshundert") and after 2099, which are not said in this form;
- parts of an amount that are zero ("two euro, zero cents" is said "two euro").

German counts ending in "eins" are inflected before a noun, and "ein Euro" is inflected for case,
so those values appear only in phrases where their form does not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Literal

from ..specs.findings import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Split = Literal["train", "valid", "test"]
Frame = tuple[str, str]
"""An English phrase and its German; ``{}`` is replaced by a spelled value."""

TESTED, VALIDATED = 0.1, 0.1
"""Fractions of the values that are assigned to test and to validation."""
ALWAYS_TRAINED = 100
"""Values below this are used for training only."""
PATIENCE = 10_000
"""Consecutive draws without a new line after which a split counts as exhausted."""


@dataclass(frozen=True, slots=True)
class Line:
    """One pair of sentences and the values that it spells."""

    source: str
    """English."""
    target: str
    """German."""
    values: tuple[tuple[str, int], ...]
    """(kind, value) of each number; money is in cents, decimals in hundredths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """One kind of number: its values, their spelling and their phrases."""

    kind: str
    weight: int
    """Relative frequency among the lines."""
    draw: Callable[[Random], int]
    spell: Callable[[int, str], str]
    frames: tuple[Frame, ...]
    """Phrases that fit any value."""
    wary_frames: tuple[Frame, ...] = ()
    """Phrases in which a value that `ends_in_one` would be inflected in German."""
    ends_in_one: Callable[[int], bool] = lambda _: False


def write_corpus(
    folder: str | Path, *, train: int = 20_000, valid: int = 500, test: int = 500, seed: int = 1
) -> dict[str, int]:
    """Write `train.en`, `train.de`, `valid.en`, ... into a folder, one sentence per line.

    Args:
        folder: output folder, created if missing; existing files of these names are replaced.
        train: number of training lines.
        valid: number of validation lines.
        test: number of test lines.
        seed: random seed of the lines and of the assignment of values to splits.

    Returns:
        The number of lines written for each split.

    Raises:
        InputError: num2words is missing, or there are not enough different lines.
    """
    folder = Path(folder)
    wanted: dict[Split, int] = {"train": train, "valid": valid, "test": test}
    lines = {split: make_lines(count, split=split, seed=seed) for split, count in wanted.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for split, made in lines.items():
        for language, texts in (("en", [m.source for m in made]), ("de", [m.target for m in made])):
            text = "".join(text + "\n" for text in texts)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")
    return {split: len(made) for split, made in lines.items()}


def make_lines(count: int, *, split: Split, seed: int) -> list[Line]:
    """Return `count` lines with different English texts, determined by the arguments.

    Raises:
        InputError: num2words is missing, or there are not enough different lines.
    """
    if count < 0:
        msg = f"cannot make {count} lines for {split}"
        raise InputError(msg, help="give a number of at least 0")
    lines = list(islice(_different_lines(split, seed), count))
    if len(lines) < count:
        msg = f"cannot make {count} different lines for {split}: about {len(lines)} exist"
        raise InputError(msg, help="ask for fewer lines")
    return lines


def split_of(kind: str, value: int, seed: int) -> Split:
    """Return the only split in which this value of this kind may appear."""
    if value < ALWAYS_TRAINED:
        return "train"
    digest = blake2b(f"{seed}/{kind}/{value}".encode(), digest_size=8).digest()
    place = int.from_bytes(digest, "big") / 2**64
    if place < TESTED:
        return "test"
    return "valid" if place < TESTED + VALIDATED else "train"


def _different_lines(split: Split, seed: int) -> Iterator[Line]:
    """Draw different lines until the split is exhausted."""
    random = Random(f"{seed}/{split}")
    forms = _forms()
    weights = [form.weight for form in forms]
    seen: set[str] = set()
    idle = 0
    while idle < PATIENCE:
        [form] = random.choices(forms, weights)
        line = _line(form, random, split, seed)
        if line.source in seen:
            idle += 1
            continue
        idle = 0
        seen.add(line.source)
        yield line


def _line(form: _Form, random: Random, split: Split, seed: int) -> Line:
    """Fill one phrase of a form with values of a split, in ascending order."""
    english, german = random.choice(form.frames + form.wary_frames)
    wary = (english, german) in form.wary_frames
    values: set[int] = set()
    while len(values) < english.count("{}"):
        value = form.draw(random)
        if split_of(form.kind, value, seed) == split and not (wary and form.ends_in_one(value)):
            values.add(value)
    rising = sorted(values)
    return Line(
        english.format(*(form.spell(value, "en") for value in rising)),
        german.format(*(form.spell(value, "de") for value in rising)),
        tuple((form.kind, value) for value in rising),
    )


def _draw_cardinal(random: Random) -> int:
    """Draw a number up to 999,999, magnitude first, that num2words spells correctly in German."""
    while True:
        [digits] = random.choices(range(1, 7), (1, 4, 6, 6, 4, 4))
        value = random.randrange(10 ** (digits - 1), 10**digits)
        thousands = value // 1000
        if not (thousands > 1 and thousands % 100 == 1):
            return value


def _draw_ordinal(random: Random) -> int:
    return random.randrange(1, 10 ** random.choice((2, 3, 4)))


def _draw_year(random: Random) -> int:
    return random.randrange(*random.choice(((1000, 1800), (1800, 2000), (1900, 2100))))


def _draw_cents(random: Random) -> int:
    """Draw an amount in cents, up to 9,999.99; one in three is a whole amount."""
    [digits] = random.choices(range(5), (1, 3, 5, 4, 2))
    whole = random.randrange(10 ** (digits - 1), 10**digits) if digits else 0
    cents = random.randrange(1, 100) if digits == 0 or random.random() < 2 / 3 else 0
    return 100 * whole + cents


def _draw_hundredths(random: Random) -> int:
    return random.choice((1, 10)) * random.randrange(1, 1000)


def _spell(value: int | Decimal, language: str, to: str = "cardinal", **options: str) -> str:
    """Spell a value with num2words, imported at the first call.

    Raises:
        InputError: num2words is not installed.
    """
    try:
        from num2words import num2words  # noqa: PLC0415 - only this corpus needs it
    except ImportError as error:
        msg = "the spelled numbers need the package 'num2words'"
        raise InputError(msg, help="install the extra: pip install 'weft[demo]'") from error
    return str(num2words(value, lang=language, to=to, **options))


def _ordinal(value: int, language: str) -> str:
    return _spell(value, language, "ordinal")


def _year(value: int, language: str) -> str:
    return _spell(value, language, "year")


def _hundredths(value: int, language: str) -> str:
    return _spell(Decimal(value) / 100, language)


def _money(value: int, language: str, currency: str) -> str:
    """Spell an amount without a part that is zero."""
    amount = Decimal(value).scaleb(-2)
    text = _spell(amount, language, "currency", currency=currency)
    between = ", " if language == "en" else " und "
    whole, cents = text.rsplit(between, 1)
    if value % 100 == 0:
        return whole
    return cents if value < 100 else text  # noqa: PLR2004 - 100 cents


def _ends_in_one(value: int) -> bool:
    return value % 100 == 1


def _money_ends_in_one(value: int) -> bool:
    return _ends_in_one(value) or _ends_in_one(value // 100)


@cache
def _forms() -> tuple[_Form, ...]:
    """Return every form; cached because spelling the dates is slow."""
    return (
        _Form(
            kind="cardinal",
            weight=35,
            draw=_draw_cardinal,
            spell=_spell,
            frames=CARDINAL_FRAMES,
            wary_frames=COUNT_FRAMES,
            ends_in_one=_ends_in_one,
        ),
        _Form(kind="ordinal", weight=20, draw=_draw_ordinal, spell=_ordinal, frames=ORDINAL_FRAMES),
        _Form(kind="year", weight=15, draw=_draw_year, spell=_year, frames=YEAR_FRAMES),
        _Form(kind="year", weight=10, draw=_draw_year, spell=_year, frames=_date_frames()),
        *(
            _Form(
                kind="money",
                weight=weight,
                draw=_draw_cents,
                spell=partial(_money, currency=code),
                frames=(("{}", "{}"),),
                wary_frames=MONEY_FRAMES,
                ends_in_one=_money_ends_in_one,
            )
            for code, weight in (("EUR", 8), ("USD", 4), ("GBP", 3))
        ),
        _Form(
            kind="decimal",
            weight=5,
            draw=_draw_hundredths,
            spell=_hundredths,
            frames=DECIMAL_FRAMES,
        ),
    )


def _date_frames() -> tuple[Frame, ...]:
    """Return a phrase for every day of a common year, with a slot for the year."""
    return tuple(
        (
            f"on the {_ordinal(day, 'en')} of {english} {{}}",
            f"am {_ordinal(day, 'de')}n {german} {{}}",
        )
        for english, german, days in MONTHS
        for day in range(1, days + 1)
    )


CARDINAL_FRAMES: tuple[Frame, ...] = (
    ("{}", "{}"),
    ("minus {}", "minus {}"),
    ("number {}", "Nummer {}"),
    ("page {}", "Seite {}"),
    ("room {}", "Zimmer {}"),
    ("from {} to {}", "von {} bis {}"),
    ("The answer is {}.", "Die Antwort ist {}."),
)
COUNT_FRAMES: tuple[Frame, ...] = (
    ("{} people", "{} Menschen"),
    ("more than {} books", "mehr als {} Bücher"),
    ("We drove {} miles.", "Wir fuhren {} Meilen."),
    ("There are {} words in it.", "Darin stehen {} Wörter."),
)
ORDINAL_FRAMES: tuple[Frame, ...] = (
    ("the {} day", "der {} Tag"),
    ("the {} edition", "die {} Auflage"),
    ("the {} attempt", "der {} Versuch"),
    ("for the {} time", "zum {}n Mal"),
    ("in the {} row", "in der {}n Reihe"),
    ("her {} letter", "ihr {}r Brief"),
    ("Today the {} guest arrived.", "Heute kam der {} Gast an."),
)
YEAR_FRAMES: tuple[Frame, ...] = (
    ("the year {}", "das Jahr {}"),
    ("in the year {}", "im Jahr {}"),
    ("since the year {}", "seit dem Jahr {}"),
    ("the winter of {}", "der Winter {}"),
    ("between {} and {}", "zwischen {} und {}"),
    ("She was born in {}.", "Sie wurde {} geboren."),
    ("The house dates from {}.", "Das Haus stammt aus dem Jahr {}."),
)
MONEY_FRAMES: tuple[Frame, ...] = (
    ("It costs {}.", "Es kostet {}."),
    ("She paid {}.", "Sie zahlte {}."),
    ("a bill for {}", "eine Rechnung über {}"),
)
DECIMAL_FRAMES: tuple[Frame, ...] = (
    ("{}", "{}"),
    ("{} percent", "{} Prozent"),
    ("about {} meters", "etwa {} Meter"),
)
MONTHS = (
    ("January", "Januar", 31),
    ("February", "Februar", 28),
    ("March", "März", 31),
    ("April", "April", 30),
    ("May", "Mai", 31),
    ("June", "Juni", 30),
    ("July", "Juli", 31),
    ("August", "August", 31),
    ("September", "September", 30),
    ("October", "Oktober", 31),
    ("November", "November", 30),
    ("December", "Dezember", 31),
)
