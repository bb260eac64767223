"""Settings with mistakes: all of them are reported, and the others are read."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from weft.specs.findings import SpecError
from weft.specs.lost_settings import LostSettings, ReadSettings, read_settings


class Part(BaseModel):
    """An entry of a list or an object."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    size: int = Field(ge=1)
    kind: Literal["adam", "muon"] = "adam"


class Settings(BaseModel):
    """Settings of a made-up kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    updates: int = Field(ge=1)
    rate: float = 0.1
    parts: tuple[Part, ...] = ()
    columns: dict[str, Part] = Field(default_factory=dict)


GOOD: dict[str, Any] = {"updates": 5, "rate": 0.5}
DEPENDS = {"/parts": ("/updates",), "/rate": ("/columns/*",)}


def read(value: Any) -> ReadSettings[Settings]:
    """Read settings of a file `run.json`."""
    return read_settings(Settings, value, "run.json", {}, DEPENDS)


def places(settings: ReadSettings[Settings]) -> list[str]:
    """Return the places of the findings, sorted."""
    return sorted(finding.at for finding in settings.findings)


def test_settings_without_a_mistake_are_read() -> None:
    """Nothing is lost."""
    settings = read(GOOD)

    assert settings == ReadSettings(Settings(updates=5, rate=0.5))
    assert not settings.lost.hides("/rate")


def test_every_mistake_is_reported_at_its_place() -> None:
    """Wrong values in objects, in a list and of a name, an unknown key and a missing one."""
    settings = read(
        {
            "updates": 0,
            "rate": "fast",
            "parts": [{"size": 1}, {"size": 0}, {"size": 2, "kind": "adma"}, {}],
            "columns": {"a": {"size": "x"}},
            "nonsense": 1,
        }
    )

    assert places(settings) == [
        "/columns/a/size",
        "/nonsense",
        "/parts/1/size",
        "/parts/2/kind",
        "/parts/3",
        "/rate",
        "/updates",
    ]
    assert settings.form is not None
    assert settings.form.rate == 0.1
    assert settings.form.parts[0] == Part(size=1)


def test_a_similar_name_is_taken_for_the_one_that_was_meant() -> None:
    """Later findings about it are at the key as it was written, and it is not lost."""
    settings = read({"updates": 5, "raet": 0.5})

    assert places(settings) == ["/raet"]
    assert settings.form == Settings(updates=5, rate=0.5)
    assert settings.written("/rate") == "/raet"
    assert not settings.lost.covers("/rate")


def test_entries_of_a_list_keep_their_numbers() -> None:
    """Without the wrong first and third entry, the second is at 0."""
    settings = read({**GOOD, "parts": [3, {"size": 7}, "x", {"size": 9}]})

    assert places(settings) == ["/parts/0", "/parts/2"]
    assert settings.form is not None
    assert [part.size for part in settings.form.parts] == [7, 9]
    assert settings.written("/parts/0/size") == "/parts/1/size"
    assert settings.written("/parts/1/size") == "/parts/3/size"


def test_a_wrong_value_of_a_record_that_others_name_is_guessed() -> None:
    """A column stays, since others refer to it by its name."""
    settings = read({**GOOD, "columns": {"text": 3}})

    assert places(settings) == ["/columns/text"]
    assert settings.form is not None
    assert settings.lost.covers("/columns/text/size")


def test_what_a_guess_may_cause_is_hidden() -> None:
    """Parts depend on `updates`, and `rate` on anything inside of `columns`."""
    lost = LostSettings(frozenset({"/updates", "/columns/text/size"}), DEPENDS)

    assert lost.hides("/updates")
    assert lost.hides("/parts/0/size")
    assert lost.hides("/rate")
    assert lost.hides("/columns/text")
    assert not lost.hides("/columns/label")
    assert lost.inside("/columns")
    assert not lost.inside("/parts")
    assert not LostSettings().hides("/rate")


@pytest.mark.parametrize("value", [3, [], "text", None])
def test_what_is_not_an_object_is_refused_at_once(value: Any) -> None:
    """There is nothing to go on with."""
    with pytest.raises(SpecError, match="not a JSON object"):
        read(value)
