"""Generation settings of Hugging Face's library, read and written.

The defaults that it applies to keys which a file lacks are those of its documentation of
`GenerationConfig`: `top_k` 50, and no other limit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.interop.importing.generation import (
    Generation,
    read_generation,
    written_generation,
)
from weft.runtime.decode.settings import BeamSearch, Sampling
from weft.specs.findings import InputError


def read(folder: Path, *, decodes: bool, **settings: Any) -> Generation:
    """Return the settings of a file."""
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return read_generation(folder, decodes=decodes)


@pytest.mark.parametrize(("given", "wanted"), [({}, 50), ({"top_k": 7}, 7), ({"top_k": 0}, None)])
def test_sampling_has_the_candidates_of_the_library(
    tmp_path: Path, given: dict[str, Any], wanted: int | None
) -> None:
    """It samples from 50 tokens unless told otherwise; 0 means all of them."""
    found = read(tmp_path, decodes=False, do_sample=True, temperature=0.7, **given)
    other = read(tmp_path, decodes=True, do_sample=True, num_return_sequences=2, **given)

    assert dict(found.generate) == {"temperature": 0.7, "top_k": wanted}
    assert other.search == {"type": "sample", "top_k": wanted or 0, "samples": 2}


def test_sampling_from_all_tokens_is_written() -> None:
    """Without the key the library would sample from 50."""
    text = written_generation({}, BeamSearch(), {"temperature": 0.7}, decodes=False, longest=9)
    other = written_generation({}, Sampling(top_p=0.9), {}, decodes=True, longest=9)

    assert text[0] == {"do_sample": True, "top_k": 0, "temperature": 0.7}
    assert other[0] == {
        "do_sample": True,
        "top_k": 0,
        "top_p": 0.9,
        "num_return_sequences": 1,
        "max_length": 10,
    }


@pytest.mark.parametrize(
    ("search", "longest"),
    [
        ({}, 9),
        ({"max_factor": 0.0}, 50),
        ({"max_factor": 0.0, "max_extra": 20}, 20),
        ({"max_length": 5}, 5),
        ({"max_factor": 0.0, "max_extra": 20, "max_length": 5}, 5),
    ],
)
def test_the_limit_of_an_output_is_written(search: dict[str, Any], longest: int) -> None:
    """Their length counts the token with which an output begins."""
    made, _ = written_generation({}, BeamSearch(**search), {}, decodes=True, longest=9)

    assert made["max_length"] == longest + 1


@pytest.mark.parametrize(
    "wrong",
    [{"num_beams": "four"}, {"num_beams": 0}, {"min_length": "2"}],
)
def test_a_wrong_value_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """The file is part of a model that somebody else wrote."""
    with pytest.raises(InputError, match="wrong value") as caught:
        read(tmp_path, decodes=True, **wrong)

    assert caught.value.location == str(tmp_path / "generation_config.json")


def test_a_wrong_value_of_sampling_is_found_when_it_is_read(tmp_path: Path) -> None:
    """Not when the imported model is opened."""
    with pytest.raises(InputError, match="wrong value"):
        read(tmp_path, decodes=False, do_sample=True, temperature="hot")
