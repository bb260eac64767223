"""Read JSON files into validated records, reporting every mistake of form at once.

Comments and a comma after the last entry are permitted.  Reading an untrusted file never
executes anything: only JSON of limited size and depth is accepted, duplicate keys are errors,
and no name in a file is imported.

A file of an older format is upgraded to the current one first: an upgrader converts its JSON value
to the next format.  All formats are 1 until a release has written them, so there are no upgraders
yet.  An upgrader leaves unknown parts unchanged, and what reads the result reports them.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from .findings import (
    Finding,
    InputError,
    SpecError,
    at_most,
    did_you_mean,
    nearest_shipped,
    pointer,
)
from .form import Kind, SpecForm, holds_spec, kind_of
from .json_tree import DEEPEST, Source, line_and_column, without_comments
from .regular_files import path_in
from .wording import form_findings, own_errors

Upgrader = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts a value of one format to the next; it may modify its argument."""

SPECS: Mapping[int, Upgrader] = {}
"""Format of a spec to the function that upgrades it to the next format."""
RUNS: Mapping[int, Upgrader] = {}
"""The same for runs."""
TABLES: Mapping[int, Upgrader] = {}
"""The same for import tables."""

_FAILURES = (LookupError, TypeError, ValueError, AttributeError)
"""Exceptions that an upgrader may raise for an object of an unexpected form."""


def upgrade_format(
    value: Mapping[str, Any], formats: Mapping[int, Upgrader] = SPECS
) -> dict[str, Any]:
    """Return a file's value in the current format.

    Args:
        value: the file's JSON value; it is not modified.
        formats: format to its upgrader.

    Returns:
        The new value.  A value that cannot be upgraded is returned unchanged; the reader then
        rejects it.
    """
    current = dict(value)
    while _format_of(current) in formats:
        number = current["format"]
        try:
            current = {**formats[number](copy.deepcopy(current)), "format": number + 1}
        except _FAILURES:
            break
    return current


def _format_of(value: Mapping[str, Any]) -> int | None:
    number = value.get("format")
    return number if isinstance(number, int) and not isinstance(number, bool) else None


MOST_WRITTEN = 1_000
"""Maximum number of nodes as written, including blocks in slots; also the maximum number of
entries in one object or list."""
LONGEST_TEXT = 1_000
"""Maximum number of characters in a key, and in a string other than `doc`."""
LARGEST_VALUE = 1_000
"""Maximum total of nested values and string characters in the value of one param."""

_Path = tuple[Any, ...]
"""Path to a value: `(path to its container, key)`; `()` is the root."""


def beyond_bounds(value: Mapping[str, Any], source: str) -> Iterator[Finding]:
    """Yield a finding for each part of a spec that exceeds a limit.

    Args:
        value: the spec or child spec as JSON; it need not be valid.
        source: the file's name, for findings.
    """
    yield from _too_many_nodes(value, source)
    for path, code, problem, help_ in _too_large(value):
        at = pointer(*_steps(path))
        yield Finding(code=code, at=at, problem=problem, help=help_, source=source)


def _too_many_nodes(value: Mapping[str, Any], source: str) -> Iterator[Finding]:
    scopes = {pointer("nodes"): value.get("nodes")}
    templates = value.get("blocks")
    for name, template in templates.items() if isinstance(templates, dict) else ():
        if isinstance(template, dict):
            scopes[pointer("blocks", name, "nodes")] = template.get("nodes")
    written = {at: _uses(nodes) for at, nodes in scopes.items()}
    total = sum(written.values())
    if total > MOST_WRITTEN:
        largest = max(written, key=lambda at: written[at])
        yield Finding(
            code="S09",
            at=largest,
            problem=f"the spec has {total:,} nodes as written, more than {MOST_WRITTEN:,}",
            evidence=(f"{written[largest]:,} of them are here",),
            help="move recurring nodes into a template, and repeat it",
            source=source,
        )


def _uses(nodes: Any) -> int:
    """Return the number of nodes in an object, including the blocks in their slots."""
    if not isinstance(nodes, dict):
        return 0
    inner = (node["fill"] for node in nodes.values() if isinstance(node, dict) and "fill" in node)
    return len(nodes) + sum(map(_uses, inner))


def _too_large(value: Any) -> Iterator[tuple[_Path, str, str, str]]:
    """Yield path, code, problem and help of each part that is too large."""
    long = "S10", f"a string is longer than {LONGEST_TEXT:,} characters"
    shorter = "shorten it; only 'doc' may be longer"
    large = "S11", f"the value of a param is larger than {LARGEST_VALUE:,} characters and values"
    simpler = "write a number, a boolean, a string or a block choice"
    many = "S11", f"an object or a list has more than {MOST_WRITTEN:,} entries"
    waiting: list[tuple[_Path, Any]] = [((), value)]
    while waiting:
        path, current = waiting.pop()
        if len(current) > MOST_WRITTEN and path != ((), "nodes"):
            yield path, *many, "split it, or repeat a template"
        bounded = isinstance(current, dict) and bool(path) and path[-1] == "params"
        for key, inner in current.items() if isinstance(current, dict) else enumerate(current):
            if isinstance(key, str) and len(key) > LONGEST_TEXT:
                yield path, *long, shorter
            elif isinstance(inner, str) and len(inner) > LONGEST_TEXT and key != "doc":
                yield (path, key), *long, shorter
            elif isinstance(inner, dict | list | tuple):
                if not bounded or holds_spec(inner):
                    waiting.append(((path, key), inner))
                elif larger(inner, LARGEST_VALUE):
                    yield (path, key), *large, simpler


def larger(value: Any, most: int) -> bool:
    """Return whether a value has more than `most` nested values and string characters."""
    waiting, size = [value], 0
    while waiting and size <= most:
        current = waiting.pop()
        if isinstance(current, str):
            size += len(current)
        elif isinstance(current, dict | list | tuple):
            size += len(current)
            waiting += [*current, *current.values()] if isinstance(current, dict) else current
    return size > most


def _steps(path: _Path) -> list[str | int]:
    """Return the keys of a path, outermost first."""
    steps: list[str | int] = []
    while path:
        path, key = path
        steps.append(key)
    return steps[::-1]


LARGEST = 384 << 10
"""Maximum bytes of a spec or run file; 1,000 nodes, written out in full, take 300,000."""
SHIPPED = Path(__file__).parent
"""Directory of the shipped specs and runs."""
LONGEST_NUMBER = 400
"""Maximum number of characters in a number."""
RUN_FOLDER = "runs"
"""Folder of the shipped runs."""
FOR_EDITORS = "$schema"
"""A key of a spec file that names its JSON Schema for editors; the reader ignores it."""

Form = TypeVar("Form", bound=BaseModel)
_TEXTS: contextvars.ContextVar[Mapping[Path, str]] = contextvars.ContextVar("_TEXTS")


def shipped_names(*folders: str) -> dict[str, Path]:
    """Return the shipped files of the folders `specs/<folder>/` by name."""
    listed = (SHIPPED / folder for folder in folders)
    paths = (path for folder in listed for path in _listed(folder, folder.stat().st_mtime_ns))
    return {path.stem: path for path in paths}


@functools.lru_cache(maxsize=32)
def _listed(folder: Path, changed: int) -> tuple[Path, ...]:
    """List a folder once for each of its times of change: every name of a spec asks for it."""
    del changed
    return tuple(sorted(folder.glob("*.json")))


CHECKPOINT_SPEC = "spec.json"
"""File of a checkpoint folder that contains its spec."""


def find(name: str, *folders: str) -> Path:
    """Return the file at a path, or the shipped file of that name or of that folder and name.

    The folder of a checkpoint stands for its spec where specs are wanted.

    Raises:
        InputError: neither exists, or that spec is a link out of its folder.
    """
    path, shipped = Path(name), shipped_names(*folders)
    try:
        if path.exists() and not path.is_dir():  # also a pipe, such as <(...) of a shell
            return path
        if "models" in folders and (spec := path / CHECKPOINT_SPEC).is_file():
            path_in(path, CHECKPOINT_SPEC)
            return spec
        if path.is_dir() and name not in shipped:
            raise InputError(
                "this is a folder", location=name, help="give the path of a file in it"
            )
        siblings = [str(p) for p in path.parent.glob("*.json")] if path.parent.is_dir() else []
    except PermissionError as error:
        problem, help_ = "the file cannot be read: Permission denied", "choose another path"
        raise InputError(problem, location=name, help=help_) from error
    except (OSError, ValueError) as error:
        raise InputError("this is not a valid file name", location=name[:80]) from error
    folder = name.rpartition("/")[0]
    if folder in folders:  # of several shipped files with one name
        shipped |= {f"{folder}/{stem}": file for stem, file in shipped_names(folder).items()}
    if name in shipped:
        return shipped[name]
    matches = [file for file in siblings if Path(file) == Path(f"{name}.json")]
    siblings = [file for file in siblings if Path(file) != path]
    help_ = f"did you mean '{matches[0]}'?" if matches else ""
    if "/" in name or name.endswith(".json") or not folders:
        others = ", or a name that 'weft list' prints" if folders else ""
        help_ = help_ or did_you_mean(name, siblings) or f"give the path of a file{others}"
        raise InputError("no such file", location=name, help=help_)
    problem = f"'{name}' is neither a file nor shipped with weft"
    kind = folders[-1] if len(folders) == 1 else "specs"
    raise InputError(problem, help=help_ or nearest_shipped(name, shipped, kind))


@contextlib.contextmanager
def with_texts(texts: Mapping[Path, str]) -> Iterator[None]:
    """Within this context, files have other texts than on the disk, as in an editor.

    Args:
        texts: resolved path of a file to its text.
    """
    token = _TEXTS.set(texts)
    try:
        yield
    finally:
        _TEXTS.reset(token)


def read_text(path: Path, largest: int = LARGEST) -> str:
    """Return the text of a JSON file of limited size.

    Args:
        path: the file.
        largest: maximum size in bytes.

    Raises:
        InputError: the file cannot be read, is too large or is not UTF-8.
    """
    texts = _TEXTS.get({})
    if texts and path.resolve() in texts:
        return texts[path.resolve()]
    try:
        with path.open("rb") as file:
            data = file.read(largest + 1)
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", location=str(path)) from error
    return text_of(data, str(path), largest)


def text_of(data: bytes, name: str, largest: int = LARGEST) -> str:
    """Return the text of some bytes.

    Args:
        data: content of a file, or at least its first `largest + 1` bytes.
        name: name of the file.
        largest: maximum size in bytes.

    Raises:
        InputError: there are too many bytes, or they are not UTF-8.
    """
    if len(data) > largest:
        raise InputError(f"larger than {largest} bytes", location=name)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            "the file is not UTF-8", location=f"{name}, byte {error.start}", help="save it as UTF-8"
        ) from error


def read_file(path: Path, largest: int = LARGEST) -> tuple[Any, Source]:
    """Return the JSON value of a file, and its name with its text, for findings.

    Args:
        path: the file.
        largest: maximum size in bytes.

    Raises:
        InputError: the file cannot be read, is too large or is not UTF-8.
        SpecError: the text is not JSON, is nested too deeply, or has a duplicate key.
    """
    source = Source(str(path), read_text(path, largest))
    return read_json(source.text, source), source


def read_json(text: str, source: str, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON text, which may contain comments and trailing commas.

    Args:
        text: content of the file.
        source: name of the file, for findings.
        constant: value of `Infinity` and the like, which are not JSON; by default they are refused.

    Raises:
        SpecError: the text is not JSON, is nested too deeply, or has a duplicate key.
    """

    def fail(code: str, problem: str, help_: str, offset: int | None = None) -> SpecError:
        finding = Finding(
            code=code, at="", problem=problem, help=help_, source=source, offset=offset
        )
        return SpecError([finding])

    stripped, depth, unclosed = without_comments(text)
    if unclosed is not None:
        problem = "a comment is not closed at {}:{}".format(*line_and_column(text, unclosed))
        raise fail("S01", f"not JSON: {problem}", "end it with '*/'", unclosed)
    if depth > DEEPEST:
        help_ = "move the inner part into a template"
        raise fail("S06", f"nested more than {DEEPEST} levels deep", help_)
    duplicates: list[tuple[str, dict[str, Any]]] = []

    def collect_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for key, value in pairs:
            if key in record:
                duplicates.append((key, record))
            record[key] = value
        return record

    try:
        value = json.loads(
            stripped,
            object_pairs_hook=collect_duplicates,
            parse_int=_integer,
            parse_float=_real,
            parse_constant=constant or _refuse,
        )
    except json.JSONDecodeError as error:
        message, position = error.msg[:1].lower() + error.msg[1:], f"{error.lineno}:{error.colno}"
        help_ = f"look at line {error.lineno}, column {error.colno}"
        raise fail("S01", f"not JSON: {message} at {position}", help_, error.pos) from error
    except ValueError as error:
        raise fail("S01", f"not JSON: {error}", "write a finite number") from error
    if "\\u" in stripped and (half := _half_character(value)) is not None:
        offset = stripped.lower().find(half)
        problem = f"not JSON: '{half}' is half of a character"
        raise fail("S01", problem, "write the character itself", max(offset, 0))
    if duplicates:
        places = _records(value)
        findings = (
            Finding(
                code="S02",
                at=places[id(record)] + pointer(key),
                problem=f"duplicate key '{key}'",
                help="keep one of the two",
                source=source,
            )
            for key, record in duplicates
            if id(record) in places  # otherwise a later duplicate replaced its parent
        )
        raise SpecError(at_most(findings, source))
    return value


def _half_character(value: Any) -> str | None:
    """Return the escape of a surrogate without its other half in a JSON value; None if none is."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return f"\\u{ord(error.object[error.start]):04x}"
    return None


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        msg = "a number is too long"
        raise ValueError(msg)
    return int(digits)


def _real(digits: str) -> float:
    if len(digits) > LONGEST_NUMBER or not math.isfinite(float(digits)):
        msg = "a number is too large"
        raise ValueError(msg)
    return float(digits)


def _refuse(word: str) -> None:
    msg = f"{word} is not JSON"
    raise ValueError(msg)


def _records(value: Any) -> dict[int, str]:
    """Return the pointer of every object inside a value, by `id`."""
    waiting, pointers = [("", value)], {}
    while waiting:
        at, item = waiting.pop()
        if isinstance(item, dict):
            pointers[id(item)] = at
            waiting += [(at + pointer(key), inner) for key, inner in item.items()]
        elif isinstance(item, list):
            waiting += [(at + pointer(index), inner) for index, inner in enumerate(item)]
    return pointers


def run_in(name: str | Path) -> tuple[Any, Source] | None:
    """Read a run, given its path or shipped name.

    Returns:
        Its value, and its file with the text; None if that is another file.

    Raises:
        InputError: the file cannot be read.
        SpecError: the text is not valid JSON.
    """
    path = shipped_names(RUN_FOLDER).get(str(name), Path(name))
    value, source = read_file(path) if path.is_file() else (None, Source("", ""))
    return (value, source) if kind_of(value) == "run" else None


def parse(
    form: type[Form],
    value: Any,
    source: str,
    formats: Mapping[int, Upgrader] = SPECS,
    *,
    strict: bool = False,
) -> Form:
    """Validate a JSON value as the given record, after upgrading it from an older format.

    Args:
        form: class of the record.
        value: any JSON value.
        source: name of its file, for findings.
        formats: older format to its upgrader; by default the upgraders of specs.
        strict: whether to convert only whole floats to integers, not "8" or true, as records of
            specs always do.

    Raises:
        SpecError: every invalid place in the value, or every part that is too large.
    """
    if not isinstance(value, dict):
        finding = Finding(code="S04", at="", problem="the file is not a JSON object", source=source)
        raise SpecError([finding])
    if "format" in form.model_fields:
        value = upgrade_format(value, formats)
    version = value.get("format")
    format_field = form.model_fields.get("format")
    supported = get_args(format_field.annotation) if format_field is not None else ()
    if supported and version is not None and version not in supported:
        raise SpecError([_unread(version, supported[0], formats, source)])
    if "format" in form.model_fields:  # only complete files have this key
        value = {key: inner for key, inner in value.items() if key != FOR_EDITORS}
    if form is SpecForm:
        _bounded(value, source)
    try:
        return validated(form, value) if strict else form.model_validate(value)
    except ValidationError as errors:
        findings = (
            finding
            for error in own_errors(errors.errors())
            for finding in form_findings(error, form, value, source)
        )
        raise SpecError(at_most(findings, source)) from None


def validated(form: type[Form], value: Any, context: Any = None) -> Form:
    """Validate a JSON value as a record, of which only whole floats are converted.

    Args:
        form: class of the record.
        value: any JSON value.
        context: what validators of the record get to know.

    Raises:
        ValidationError: the value is not such a record.
    """
    # As text, because pydantic refuses a list for a tuple otherwise.
    text = json.dumps(_whole(value), default=str)
    return form.model_validate_json(text, strict=True, context=context)


def _unread(version: Any, newest: int, formats: Mapping[int, Upgrader], source: str) -> Finding:
    """Return the finding about a format that cannot be read or upgraded."""
    reads = ", ".join(map(str, [*formats, newest]))
    older = isinstance(version, int) and version in formats
    return Finding(
        code="S05",
        at="/format",
        problem=f"the file of format {version} cannot be upgraded: a required key is missing or"
        " wrong"
        if older
        else f"unknown format {json.dumps(version)[:20]}",
        evidence=(f"this version of weft reads format {reads}",),
        help=f"correct the file, or write it in format {newest}"
        if older
        else "update weft to read a newer format",
        source=source,
    )


def _whole(value: Any) -> Any:
    """Return a JSON value with its whole floats as integers: 1e5 as 100000."""
    if isinstance(value, Mapping):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_value(path: Path) -> tuple[Any, Source]:
    """Return the JSON value of a spec file (standalone or a child) in the current format.

    Returns:
        The value, and the file's name with its text.

    Raises:
        InputError: the file cannot be read.
        SpecError: the text is not valid JSON, or the value is too large.
    """
    value, source = read_file(path)
    return current(value, source), source


def current(value: Any, source: str) -> Any:
    """Return the JSON value of a spec file in the current format.

    Raises:
        SpecError: the value describes something else, or is too large.
    """
    if not isinstance(value, dict):
        return value
    refuse_other(value, source, "spec")
    _bounded(value, source)
    return upgrade_format(value)


_USES: Mapping[Kind, str] = {
    "spec": "show it with 'weft show {0}'; a run trains it as a param of its objective",
    "run": "check it with 'weft check {0}', train it with 'weft train {0}'",
    "study": "check it with 'weft study check {0}', train it with 'weft study run {0}'",
    "import table": "use it with 'weft import hf FOLDER --as {0}'",
}


def refuse_other(value: Any, source: str, kind: Kind) -> None:
    """Refuse a file that describes something else than what is read.

    Raises:
        SpecError: the value is of another kind.
    """
    described = kind_of(value)
    if described not in (kind, "other"):
        problem = f"this is {_article(described)}, and not {_article(kind)}"
        help_ = _USES[described].format(source)
        raise SpecError([Finding(code="S04", at="", problem=problem, help=help_, source=source)])


def _article(kind: Kind) -> str:
    return f"{'an' if kind.startswith('i') else 'a'} {kind}"


def _bounded(value: dict[str, Any], source: str) -> None:
    """Raise SpecError if a part of a spec exceeds a size limit."""
    beyond = at_most(beyond_bounds(value, source), source)
    if beyond:
        raise SpecError(beyond)
