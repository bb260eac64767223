"""Upgrade of run files and import tables of format 2 to format 3.

In format 2, a run had a task, which was code: `translation`, `mask_predict` or `parsing`.  In
format 3, a run trains an objective, which is a spec.  Its data are named columns, its search is the
predictor of a column, and what it measures are metrics by name.  The upgraded run has the same
tokenizers, ids, batches, initial weights and losses.

In format 2, a weight of a table had the keys `rows`, `rotary_pairs` and `reshape`; format 3 has
`split` and `take`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TREES = ("decoder", "linearization", "clean", "malformed")
"""Keys of `parsing` that determine the records of treebanks."""
_OBJECTIVES = {"translation": "translation", "mask_predict": "mask-predict"}
_DECODERS = {"chart": "chart-parsing", "tags": "tag-parsing"}
_OF_MASKS = {"iterations": 10, "lengths": 5}
"""Settings of a search that only mask-predict reads, and their defaults."""
_OF_BEAMS = {
    "beam": 4,
    "penalty": "gnmt",
    "alpha": 0.6,
    "ends": "any",
    "max_factor": 1.0,
    "max_extra": 50,
    "min_length": 0,
    "nbest": 1,
    "groups": 1,
    "diversity": 0.5,
    "no_repeat": 0,
    "repetition_penalty": 1.0,
    "avoid": [],
}
"""Settings of a search that mask-predict does not read, and their defaults."""
_TEXT = {"smoothing": 0.1, "spread": "vocabulary"}
"""Keys of `loss` that the losses of charts and tags do not read, and their defaults."""
_WITH_PIECES = frozenset({"parsing-aligned"})
"""Shipped models of trees with words that need the number of pieces as the param `source_vocab`."""
_PARSING = {
    "decoder": "sequence",
    "linearization": "vinyals",
    "clean": True,
    "malformed": "refuse",
    "constrained": True,
}
"""Defaults of `parsing`."""


def upgrade_run(value: dict[str, Any]) -> dict[str, Any]:
    """Return a run of format 2 in format 3.

    Unknown keys are kept, so that the reader reports them.
    """
    left = {key: one for key, one in value.items() if one is not None or key == "start"}
    task = left.pop("task", "translation")
    parsing = dict(left.pop("parsing", {}))
    if task != "parsing":
        if parsing and any(_PARSING.get(key) != one for key, one in parsing.items()):
            left["parsing"] = parsing
        parsing = {}
    parsing = {**(_PARSING if task == "parsing" else {}), **parsing}
    if task != "parsing" and task not in _OBJECTIVES:
        left["task"] = task
    made: dict[str, Any] = {key: left.pop(key) for key in ("format", "name", "doc") if key in left}
    made["objective"] = _objective(task, parsing)
    made["params"] = _params(left, value, task, parsing)
    made |= upgrade_data(value)
    if task == "parsing":
        tree = {"type": "tree", "decoder": parsing["decoder"]}
        if parsing["decoder"] == "sequence":
            tree["linearization"] = parsing["linearization"]
        made["data"]["columns"]["tree"] = tree
    if task == "mask_predict":
        made["data"]["columns"]["target"]["end"] = False
    search = left.pop("search", {})
    made["predict"] = _predictor(search, task, parsing)
    made["answers"] = "tree" if task == "parsing" else "target"
    made["evaluate"] = _evaluation(left.pop("evaluate", {}), made["predict"], task)
    for key in ("data", "tokenizer", "loss"):
        left.pop(key, None)
    selections = left.get("activation_checkpointing")
    if isinstance(selections, str):
        left["activation_checkpointing"] = f"model.{selections}"
    elif isinstance(selections, (list, tuple)):
        left["activation_checkpointing"] = [f"model.{one}" for one in selections]
    if left.get("padding") == "padded":
        del left["padding"]
        left["without"] = ["unpad"]
    return {**made, **left}


def _objective(task: str, parsing: Mapping[str, Any]) -> str:
    """Return the shipped objective of a task."""
    if task != "parsing":
        return _OBJECTIVES.get(task, "translation")
    if _copies(parsing):
        return "copy-parsing"
    return _DECODERS.get(parsing["decoder"], "sequence-parsing")


def _params(
    left: dict[str, Any], run: Mapping[str, Any], task: str, parsing: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the params of the objective, and take what they replace out of a run."""
    spec = left.pop("spec")
    own = dict(left.pop("params", {}))
    decoder = parsing.get("decoder", "sequence")
    if task == "parsing" and _copies(parsing) and spec in _WITH_PIECES:
        own.setdefault("source_vocab", run["tokenizer"]["vocab_size"])
    if decoder == "chart":
        own = {"labels": "=labels", "tags": "=tags", **own}
    elif decoder == "tags":
        own = {"tags": "=tags", "leaves": "=leaves", "nodes": "=nodes", **own}
    if task == "mask_predict":
        own.setdefault("max_length", "=max_length")
    made: dict[str, Any] = {"model": {"spec": spec, "params": own} if own else {"spec": spec}}
    if task == "mask_predict" and isinstance(own["max_length"], int):
        made["max_length"], own["max_length"] = own["max_length"], "=max_length"
    loss = dict(left.pop("loss", {}))
    if decoder in _DECODERS:
        for key, default in _TEXT.items():
            if loss.get(key) in (default, 0, None):
                loss.pop(key, None)
    smoothing = loss.pop("smoothing", None)
    if smoothing is not None:
        made["label_smoothing"] = smoothing
    if loss.get("spread") == "vocabulary":
        del loss["spread"]
    auxiliary = loss.pop("auxiliary", 0.01)
    if auxiliary != 0.01:  # noqa: PLR2004 - the default
        left["auxiliary"] = auxiliary
    return {**made, **loss}


def _predictor(search: Mapping[str, Any], task: str, parsing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the predictor that searches as the settings of a search say."""
    kept = {key: one for key, one in search.items() if one is not None}
    if task == "parsing" and parsing["decoder"] in _DECODERS:
        kept = _without(kept, {**_OF_BEAMS, **_OF_MASKS})
        return {"type": "cky" if parsing["decoder"] == "chart" else "tree_tags", **kept}
    if task == "mask_predict":
        return {"type": "mask_predict", **_without(kept, _OF_BEAMS)}
    kept = _without(kept, _OF_MASKS)
    if task == "parsing":
        constrained = {} if parsing["constrained"] else {"constrained": False}
        return {"type": "tree_beam", **_without(kept, {"nbest": 1}), **constrained}
    sample = kept.pop("sample", None)
    if sample is not None:
        kept = _without(kept, {key: _OF_BEAMS[key] for key in ("penalty", "alpha", "ends")})
        kept = _without(kept, {key: _OF_BEAMS[key] for key in ("groups", "diversity")})
        kept.pop("nbest", None)  # all samples are returned
        return {"type": "sample", "samples": kept.pop("beam", 4), **sample, **kept}
    return {"type": "beam", **kept}


def _without(settings: Mapping[str, Any], idle: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those that have no effect and their default value."""
    return {
        key: list(one) if isinstance(one, tuple) else one
        for key, one in settings.items()
        if key not in idle or _plain(one) != idle[key]
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _evaluation(old: Mapping[str, Any], predict: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return the settings of validations."""
    left = {key: one for key, one in old.items() if one is not None}
    measured = "evalb" if task == "parsing" else "bleu"
    if left.pop("lowercase", False) and task != "parsing":
        measured = "bleu_lc"
    others = [] if task == "parsing" else ["bleu", "bleu_lc", "chrf"]
    has_nll = predict["type"] in ("beam", "tree_beam", "sample", "mask_predict")
    beam, translates = left.pop("beam", 1), left.pop("bleu", True)
    best = left.pop("best", None)
    names = {"bleu": measured, "f1": "evalb", "nll": "nll" if has_nll else "loss", None: measured}
    made = {"best": names.get(best, best)}
    if translates or made["best"] == measured:
        metrics = dict.fromkeys([measured, *others, *(["perplexity"] if has_nll else [])])
        made["metrics"] = list(metrics)
        if changed := _changes(predict, beam):
            made["predict"] = changed
        if "sentences" in left:
            made["rows"] = left.pop("sentences")
    else:
        left.pop("sentences", None)
        made |= {"metrics": ["perplexity"] if has_nll else [], "samples": 0}
    return {**left, **made}


def _changes(predict: Mapping[str, Any], beam: int) -> dict[str, Any]:
    """Return what validations change in a predictor so that it searches with `evaluate.beam`."""
    name = {"beam": "beam", "tree_beam": "beam", "sample": "samples"}.get(predict["type"])
    if name is None or beam == predict.get(name, 4):
        return {}
    made: dict[str, Any] = {name: beam}
    if predict.get("nbest", 1) > beam:
        made["nbest"] = 1
    if predict.get("groups", 1) > 1 and beam == 1:
        made["groups"] = 1
    return made


def upgrade_data(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` and `tokenizers` of format 3 for a run of format 2.

    Args:
        run: a run of format 2, with `data`, `tokenizer` and possibly `task` and `parsing`; it is
            not modified.

    Returns:
        An object with the keys `data` and `tokenizers`.
    """
    parsing: Mapping[str, Any] = run.get("parsing", {}) if run.get("task") == "parsing" else {}
    is_parsing = run.get("task") == "parsing"
    tokenizer = {"type": "bpe", **run["tokenizer"]}
    target = tokenizer.pop("target", None) or ("symbols" if is_parsing else "pieces")
    shared = tokenizer.pop("shared", True) and target == "pieces"
    tokenizers: dict[str, Any] = {"tokenizer": tokenizer}
    if not shared:
        tokenizers = {"source": tokenizer, "target": tokenizer}
    if target == "symbols":
        symbols = {"type": "symbols"}
        if _copies(parsing) and is_parsing:
            symbols |= {"spelling": "source", "only": "brackets"}
        tokenizers = {"source": tokenizer, "target": symbols}
    names = ("tokenizer", "tokenizer") if shared else ("source", "target")
    own = dict(run["data"])
    data = {"root": own.pop("root")} if "root" in own else {}
    trees = {key: parsing[key] for key in _TREES if key in parsing}
    if is_parsing and target == "pieces":
        trees["pieces"] = True
    data["columns"] = {
        side: {"type": "text", "tokenizer": name}
        for side, name in zip(("source", "target"), names, strict=True)
    }
    data |= own
    for key in ("train", "valid"):
        if key in data:
            data[key] = _split(data[key], trees)
    if "test" in data:
        data["test"] = {name: _split(files, trees) for name, files in data["test"].items()}
    # Format 2 dropped pairs of more than 250 tokens by default, and refused those that did not fit
    # into a batch.
    most = min(250, run.get("batch", {}).get("tokens", 1024) - 1)
    data["filter"] = {"max_length": most, **data.get("filter", {})}
    return {"data": data, "tokenizers": tokenizers}


def _copies(parsing: Mapping[str, Any]) -> bool:
    """Return whether targets contain words, which are not symbols."""
    decoder, form = parsing.get("decoder", "sequence"), parsing.get("linearization", "vinyals")
    return (decoder, form) == ("sequence", "top_down")


def _split(files: Mapping[str, Any], trees: Mapping[str, Any]) -> dict[str, Any]:
    """Return the split of format 3 for files of format 2."""
    left = dict(files)
    made: dict[str, Any] = {}
    if left.get("mtdata"):
        made["mtdata"] = {"names": left.pop("mtdata"), "languages": left.pop("languages")}
        if digests := left.pop("digests", None):
            made["mtdata"]["digests"] = digests
    elif left.get("trees"):
        made["trees"] = {"files": left.pop("trees"), **trees}
    else:
        made["lines"] = {side: left.pop(side) for side in ("source", "target") if side in left}
    weights = left.pop("weights", None)
    if weights is not None:
        made["weights"] = weights
    return {**made, **{key: value for key, value in left.items() if value}}


def upgrade_table(value: dict[str, Any]) -> dict[str, Any]:
    """Return an import table of format 2 in format 3.

    Unknown keys are kept, so that the reader reports them.

    Raises:
        ValueError: a weight has both `rows` and `rotary_pairs`, which has no general equivalent.
    """
    return {**value, "weights": {k: _weight(v) for k, v in value["weights"].items()}}


def _weight(weight: Any) -> Any:
    """Return the origin of a weight with the operations of format 3."""
    if not isinstance(weight, dict):
        return weight
    made = dict(weight)
    rows, heads = made.pop("rows", None), made.pop("rotary_pairs", None)
    made.pop("reshape", None)  # axes are now joined where the weight has fewer
    order = made.pop("permute", None)
    if heads is not None:
        if rows is not None or order is not None:
            msg = "rows of rotary pairs have no equivalent"
            raise ValueError(msg)
        made |= {"split": [[heads, 2, -1]], "permute": [0, 2, 1]}
    if rows is not None:
        # Axes are now permuted after rows are taken, so the rows are entries of the first axis.
        first = 0 if order is None else order[0]
        made |= {"take": [None] * first + [rows], "unread": 0}
    if order is not None:
        made["permute"] = order
    return made
