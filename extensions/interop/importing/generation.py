"""Generation settings of Hugging Face's library, in Weft's words and back.

`generation_config.json` of a model has its special ids and settings of search and sampling.  Those
with a counterpart become defaults of the imported model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....plugin import BeamSearch, GenerateSettings, InputError, Sampling
from ....runtime.system.strangers import has_file
from .config import read_object

FILE = "generation_config.json"
_TOKENS = {"end": "eos_token_id", "pad": "pad_token_id"}
_SAMPLING = ("temperature", "top_k", "top_p", "min_p")
TOP_K = 50
"""`top_k` of the library where a file has none; 0 disables it."""
_PLAIN = {"no_repeat_ngram_size": "no_repeat", "num_beam_groups": "groups"}
"""Settings with the same values in both libraries, when they are not off."""
_IDLE: Mapping[str, Any] = {
    "early_stopping": None,
    "use_cache": None,
    "transformers_version": None,
    "_from_model_config": None,
    "_name_or_path": None,
    "cache_implementation": None,
    "num_beams": None,
    "max_length": None,
    "max_new_tokens": None,
    "min_length": None,
    "length_penalty": None,
    "diversity_penalty": None,
    "num_return_sequences": None,
    "do_sample": None,
    "bos_token_id": None,
    "decoder_start_token_id": None,
    "forced_eos_token_id": None,
    "repetition_penalty": 1.0,
    "output_scores": False,
    "output_attentions": False,
    "output_hidden_states": False,
    "output_logits": False,
    "return_dict_in_generate": False,
}
"""Settings that are read elsewhere or change no output; with a value, only that one does not."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The settings of a folder."""

    tokens: Mapping[str, Any] = field(default_factory=dict)
    """Begin, end and padding id, as far as the file has them."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the predictor `sample` or, without `type`, of `beam`."""
    generate: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `GenerateSettings`."""
    unused: tuple[str, ...] = ()
    """Settings without a counterpart."""


def read_generation(folder: Path, *, decodes: bool) -> Generation:
    """Return the generation settings of a model's folder; empty ones if it has none.

    Args:
        folder: the folder.
        decodes: whether the model is an encoder-decoder, whose outputs begin with a token.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is not a JSON object.
    """
    if not has_file(folder, FILE):
        return Generation()
    settings = {key: value for key, value in read_object(folder, FILE).items() if value is not None}
    try:
        return _generation(settings, decodes=decodes)
    except (OverflowError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"a setting of the generation has a wrong value: {reason:.200}",
            location=str(folder / FILE),
            help="correct it, or remove the file: then Weft's defaults apply",
        ) from error


def _generation(settings: Mapping[str, Any], *, decodes: bool) -> Generation:
    """Return the settings of a file.

    Raises:
        ValueError: a value is out of range.
        TypeError: a value has another type.
    """
    begin = "decoder_start_token_id" if decodes else "bos_token_id"
    names = {"begin": begin, **_TOKENS}
    tokens = {ours: settings[theirs] for ours, theirs in names.items() if theirs in settings}
    sampling = {"top_k": TOP_K, **{key: settings[key] for key in _SAMPLING if key in settings}}
    search: dict[str, Any] = {}
    generate: dict[str, Any] = {}
    if decodes:
        search = _search(settings)
        if settings.get("do_sample"):
            search = {key: search[key] for key in search if key in ("max_factor", "max_extra")}
            search |= {**sampling, "samples": int(settings.get("num_return_sequences", 1))}
            Sampling(**search)
            search["type"] = "sample"
        else:
            BeamSearch(**search)
    else:
        if settings.get("do_sample"):
            generate = {"temperature": 1.0, **sampling}
            generate["top_k"] = sampling["top_k"] or None
        if "max_new_tokens" in settings:
            generate["max_new"] = settings["max_new_tokens"]
    GenerateSettings(**generate)
    supported = {*_PLAIN, *_SAMPLING, *_TOKENS.values()}
    unused = tuple(
        key
        for key, value in settings.items()
        if key not in supported and (key not in _IDLE or _IDLE[key] not in (None, value))
    )
    return Generation(tokens, search, generate, unused)


def _search(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a search; those that are off are left out."""
    search: dict[str, Any] = {}
    beams = int(settings.get("num_beams", 1))
    if "num_beams" in settings:
        search["beam"] = beams
    if beams > 1:
        alpha = float(settings.get("length_penalty", 1.0))
        search |= {"penalty": "length", "alpha": alpha} if alpha > 0 else {"penalty": "none"}
        search["ends"] = "best"
        if settings.get("num_return_sequences", 1) > 1:
            search["nbest"] = settings["num_return_sequences"]
    for theirs, ours in _PLAIN.items():
        if settings.get(theirs, 0) > int(theirs == "num_beam_groups"):
            search[ours] = settings[theirs]
    if search.get("groups", 1) > 1:
        search["diversity"] = float(settings.get("diversity_penalty", 0.0))
    # Their lengths count the token with which an output begins.
    longest = settings.get("max_new_tokens", settings.get("max_length", 1) - 1)
    if longest > 0:
        search |= {"max_factor": 0.0, "max_extra": longest}
    if settings.get("min_length", 0) > 1:
        search["min_length"] = settings["min_length"] - 1
    return search


def written_generation(
    tokens: Mapping[str, Any],
    search: BeamSearch | Sampling,
    generate: Mapping[str, Any],
    *,
    decodes: bool,
    longest: int,
) -> tuple[dict[str, Any], list[str]]:
    """Return the content of `generation_config.json`, and notes on settings without counterpart.

    Args:
        tokens: begin, end and padding ids; `never` has further ids that are never written.
        search: how an encoder-decoder searches.
        generate: changed settings of `GenerateSettings`.
        decodes: whether the model is an encoder-decoder.
        longest: maximum length of an output, for a search whose limit depends on the source.
    """
    notes: list[str] = []
    begin = "decoder_start_token_id" if decodes else "bos_token_id"
    ids = {begin: tokens.get("begin"), **{k: tokens.get(o) for o, k in _TOKENS.items()}}
    config = {key: value for key, value in ids.items() if value is not None}
    if tokens.get("never"):
        config["suppress_tokens"] = sorted(tokens["never"])
    if not decodes:
        if generate.get("temperature", 0) > 0:
            sampling = {key: generate[key] for key in _SAMPLING if generate.get(key) is not None}
            config |= {"do_sample": True, "top_k": 0, **sampling}
        if "max_new" in generate:
            config["max_new_tokens"] = generate["max_new"]
        return config, notes
    if isinstance(search, Sampling):
        sampling = {key: getattr(search, key) for key in _SAMPLING}
        usual = {key: Sampling.model_fields[key].default for key in _SAMPLING}
        config |= {"do_sample": True, "top_k": 0}
        config |= {key: value for key, value in sampling.items() if value != usual[key]}
        config["num_return_sequences"] = search.samples
    else:
        config |= _beams(search, notes)
    if search.max_factor == 0:
        longest = search.max_extra
    if search.max_length is not None:
        longest = min(longest, search.max_length)
    config["max_length"] = longest + 1
    if search.min_length > 0:
        config["min_length"] = search.min_length + 1
    return config, notes


def _beams(search: BeamSearch, notes: list[str]) -> dict[str, Any]:
    """Return the settings of a beam search, and add notes."""
    options: dict[str, Any] = {"num_beams": search.beam}
    if options["num_beams"] > 1:
        alpha = {"length": search.alpha, "none": 0.0}.get(search.penalty, 1.0)
        options |= {"length_penalty": alpha, "early_stopping": "never"}
        if search.penalty == "gnmt":
            notes.append("beam search divides by the length, because GNMT's penalty is not there")
    if search.nbest > 1:
        options["num_return_sequences"] = search.nbest
    for theirs, ours in _PLAIN.items():
        if getattr(search, ours) > int(ours == "groups"):
            options[theirs] = getattr(search, ours)
    if search.groups > 1:
        options["diversity_penalty"] = search.diversity
    lacking = ["avoid"] if search.avoid else []
    lacking += ["repetition_penalty"] if search.repetition_penalty > 1 else []
    if lacking:
        notes.append(f"settings without counterpart: {', '.join(lacking)}")
    return options
