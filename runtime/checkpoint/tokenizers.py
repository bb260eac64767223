"""Tokenizers and special tokens of a checkpoint."""

from __future__ import annotations

from ...graphs.ir.traverse import written_ids
from ...graphs.passes.objective import feeds_of, source_among
from ...specs.findings import InputError
from ..data.prompts import PromptTokenizer, VocabularyPrompts
from ..data.settings import HUB
from ..data.symbols import Vocabulary
from ..data.tokenizer import Tokenizer
from ..data.vocabularies import vocabularies_of
from ..decode.decode import SpecialTokens
from .checkpoint import Checkpoint

SHARED = "tokenizer.model"
_OF_SIDES = {"source.model", "target.model"}
LABELS = ("class", "tags")
"""Types of columns of labels."""


def ends_of(checkpoint: Checkpoint) -> frozenset[int]:
    """Return the end tokens of outputs; empty if the checkpoint does not define them."""
    end = checkpoint.state.get("imported", {}).get("tokens", {}).get("end")
    if end is not None:
        return frozenset(end if isinstance(end, list) else [end])
    if is_trained(checkpoint):
        vocabulary = _written(checkpoint)
        return frozenset() if vocabulary is None else frozenset({vocabulary.eos})
    if "tokenizer.model" in checkpoint.tokenizers:
        eos = Tokenizer(checkpoint.tokenizers["tokenizer.model"], own_ids=False).eos
        return frozenset({eos} - {-1})
    return frozenset()


def special_tokens_of(checkpoint: Checkpoint) -> SpecialTokens:
    """Return the special tokens of outputs.

    Raises:
        InputError: the checkpoint does not define them.
    """
    tokens = checkpoint.state.get("imported", {}).get("tokens", {})
    ids = [tokens.get(name) for name in SpecialTokens._fields[:3]]
    ids = [value[0] if isinstance(value, list) and len(value) == 1 else value for value in ids]
    if all(isinstance(value, int) for value in ids):
        return SpecialTokens(*ids)
    if "imported" in checkpoint.state:
        raise InputError(
            "the checkpoint does not define the begin, end and padding ids of outputs",
            location=str(checkpoint.folder),
            help="give them: decode(sources, SpecialTokens(begin, end, pad))",
        )
    return SpecialTokens.of(tokenizers_of(checkpoint)[1])


def tokenizers_of(checkpoint: Checkpoint) -> tuple[Vocabulary, Vocabulary]:
    """Return the source and target tokenizers of a checkpoint.

    Raises:
        InputError: the checkpoint has no tokenizer.
    """
    files = checkpoint.tokenizers
    if is_trained(checkpoint):
        columns = vocabularies_by_column(checkpoint)
        reads, writes = (columns.get(str(side)) for side in _sides(checkpoint))
        if reads is not None and writes is not None:
            return reads, writes
    if SHARED in files:
        shared = Tokenizer.from_bytes(files[SHARED])
        return shared, shared
    if files.keys() >= _OF_SIDES:
        return tuple(Tokenizer.from_bytes(files[f"{side}.model"]) for side in ("source", "target"))  # type: ignore[return-value]
    raise InputError(
        "the checkpoint has no tokenizer",
        location=str(checkpoint.folder),
        help="copy the complete folder again, with tokenizer.model",
    )


def has_tokenizers(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint without a run has a tokenizer of its source and its target."""
    files = checkpoint.tokenizers.keys()
    return SHARED in files or files >= _OF_SIDES


def prompts_of(checkpoint: Checkpoint) -> PromptTokenizer:
    """Return the prompt tokenizer of a checkpoint, which may have its own special tokens.

    Raises:
        InputError: there is no tokenizer, it is invalid, or it does not fit the model.
    """
    if is_trained(checkpoint):
        trained = written_by(checkpoint)
        _refuse_larger(checkpoint, trained.vocab_size, str(checkpoint.folder))
        return VocabularyPrompts(trained)
    if not checkpoint.tokenizers:
        raise InputError(
            "the checkpoint has no tokenizer",
            location=str(checkpoint.folder),
            help="give token ids: weft generate --ids, or generate() in Python",
        )
    name, data = sorted(checkpoint.tokenizers.items())[-1]
    location = str(checkpoint.folder / name)
    if name == HUB:
        from ..data.hub import HubTokenizer

        hub = HubTokenizer(data, ends=ends_of(checkpoint), location=location)
        _refuse_larger(checkpoint, hub.vocab_size, location)
        return hub
    vocabulary = Tokenizer(data, location=location, own_ids=False)
    _refuse_larger(checkpoint, vocabulary.vocab_size, location)
    return VocabularyPrompts(vocabulary)


def _refuse_larger(checkpoint: Checkpoint, pieces: int, location: str) -> None:
    """Raise an error if a tokenizer has more pieces than the model has ids.

    Raises:
        InputError: it has.
    """
    sizes = [
        int(type_.size or 0) for type_ in checkpoint.graph.inputs.values() if type_.kind == "ids"
    ]
    size = min(sizes, default=0)
    if pieces > size:
        raise InputError(
            f"the tokenizer has {pieces} pieces, but the model has {size}",
            location=location,
            help="use the tokenizer of the model, or give token ids: weft generate --ids",
        )


def classes_by_column(checkpoint: Checkpoint) -> dict[str, tuple[str, ...]]:
    """Return the classes of each column of labels of a checkpoint, in the order of their numbers.

    Raises:
        InputError: a file is damaged.
    """
    from ..data.columns.labels import CLASSES, opened_classes

    classes = {}
    for name, column in checkpoint.run.get("data", {}).get("columns", {}).items():
        file = f"{name}{CLASSES}"
        stored = checkpoint.tokenizers.get(file)
        if column.get("type") in LABELS and column.get("classes"):
            classes[name] = tuple(column["classes"])
        elif column.get("type") in LABELS and stored is not None:
            classes[name] = opened_classes(stored, str(checkpoint.folder / file))
    return classes


def is_trained(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint was trained by a run, rather than imported or built."""
    return bool(checkpoint.run)


def vocabularies_in(checkpoint: Checkpoint) -> dict[str, Vocabulary]:
    """Return the vocabularies of a checkpoint by the names of its run's tokenizers.

    Raises:
        InputError: a file is missing or damaged.
    """
    settings = {} if checkpoint.task is None else checkpoint.task.tokenizers
    return vocabularies_of(checkpoint.tokenizers, settings, str(checkpoint.folder))


def vocabularies_by_column(checkpoint: Checkpoint) -> dict[str, Vocabulary]:
    """Return the vocabulary of each column of texts or symbols of an objective's checkpoint.

    Raises:
        InputError: a file is missing or damaged.
    """
    vocabularies = vocabularies_in(checkpoint)
    columns = checkpoint.run.get("data", {}).get("columns", {})
    return {
        name: vocabularies[column["tokenizer"]]
        for name, column in columns.items()
        if column.get("tokenizer") in vocabularies
    }


def _sides(checkpoint: Checkpoint) -> tuple[str | None, str | None]:
    """Return the columns that fill the ids that a model reads, and the ids that it writes.

    The latter have the step axis or, without one, the column of the answers fills them.
    """
    objective, model = checkpoint.objective, checkpoint.graph
    feeds = {port: port for port in model.inputs}
    if objective is not None and objective.deploy is not None:
        feeds = feeds_of(objective)
    ids = {port: name for port, name in feeds.items() if model.inputs[port].kind == "ids"}
    written = ids.get(str(written_ids(model)))
    if written is None:
        answers = checkpoint.run.get("answers")
        written = answers if answers in ids.values() else None
    return source_among({*ids.values()} - {written} or {*ids.values()}), written


def _written(checkpoint: Checkpoint) -> Vocabulary | None:
    """Return the vocabulary of the ids that a model writes or only reads; None without text."""
    columns = vocabularies_by_column(checkpoint)
    for name in reversed(_sides(checkpoint)):
        if name in columns:
            return columns[name]
    return next(iter(columns.values())) if len(columns) == 1 else None


def written_by(checkpoint: Checkpoint) -> Vocabulary:
    """Return the vocabulary of the column that fills the only ids that a model reads.

    Raises:
        InputError: there is no such column.
    """
    vocabulary = _written(checkpoint)
    if vocabulary is not None:
        return vocabulary
    raise InputError(
        "no column of text fills the input of the model",
        location=str(checkpoint.folder),
        help="give token ids: weft generate --ids, or generate() in Python",
    )
