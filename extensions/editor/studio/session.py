"""A session of the studio: what its page asks, answered from the text that it sends.

The text is the only state: every request contains it, and nothing is kept between requests but
what was read from the last texts.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

from ....graphs.diff.diff import diff as graph_diff
from ....graphs.passes.pipeline import PassName, after
from ....plugin import Graph, InputError, fingerprint
from ....specs.layout import format_edits
from ....specs.load import FOLDERS, LoadedSpec
from ....specs.reader import SHIPPED, find, read_text, shipped_names
from ....specs.text_edits import EditError, PatchOperation, edited
from ..language.completion import complete
from ..language.definitions import apply
from ..language.document import forget
from ..language.hover import hover
from .checked_text import CheckedText, look, read
from .comparison import compared
from .edits import Editor, edit
from .files import OpenedFile, digest, opened
from .measurements import Attending, curves, times
from .menu import menu
from .ports import fitting_blocks, fitting_ports, fitting_values
from .variant import variant

MOST_COPIES = 10_000
"""Maximum number of copies that a click sets."""
MOST_READS = 6
"""Number of texts whose result is kept, and of answers about them."""


class Session:
    """Answers the requests of a page about one file."""

    ACTIONS: ClassVar = (
        "look", "menu", "blocks", "wires", "ports", "edit", "save", "save_as", "diff", "code",
        "complete", "hover", "format", "curves",
    )  # fmt: skip
    """What a page asks; answered one after the other, under `lock`."""
    SLOW: ClassVar = ("attention", "times")
    """What runs a model: it does not hold up the others."""

    def __init__(self, file: OpenedFile) -> None:
        """Open a file.

        Args:
            file: the file.
        """
        self.opened = file
        self.lock = threading.Lock()
        self._attending = Attending(file.checkpoint) if file.checkpoint else None
        self._reads: dict[str, CheckedText] = {}
        self._looks: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._disk: dict[Path, tuple[int, int]] = {}

    def file(self) -> dict[str, Any]:
        """Return the text on disk, and what can be done with it."""
        text, disk = self.opened.text(), self.opened.beside()
        if disk != self._disk:
            # A file that the spec names may have changed.
            self._reads.clear()
            self._looks.clear()
            forget()
            self._disk = disk
        return {
            "text": text,
            "digest": digest(text),
            "path": str(self.opened.path),
            "name": (self.opened.checkpoint or self.opened.path).absolute().stem,
            "writable": self.opened.writable,
            "folder": str(self.opened.folder),
            "specs": sorted(shipped_names(*FOLDERS)),
            "passes": list(get_args(PassName)),
            "checkpoint": str(self.opened.checkpoint) if self.opened.checkpoint else None,
        }

    def start(self) -> dict[str, Any]:
        """Return the file, and the answer to its text unless it is refused, for a new page."""
        file = self.file()
        try:
            return {"file": file, "look": self.look({"text": file["text"]})}
        except InputError:
            return {"file": file}  # the page asks again, and shows why

    def prepare(self) -> None:
        """Make the answer of `start`, which is then kept."""
        with self.lock, contextlib.suppress(InputError):
            self.start()

    def look(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return findings and drawing of a text."""
        reading = self._read(asked)
        last = asked.get("pass") or None
        if last is not None and last not in get_args(PassName):
            raise InputError(f"no pass '{last}'", location="pass", help="see 'weft show --passes'")
        key, sizes = _text(asked, "key", ""), _sizes(asked)
        asks = (reading.text, key, *sizes.items(), last)
        view = _kept(self._looks, asks, lambda: look(reading, key, sizes, last))
        return {**view, "editable": False} if self.opened.checkpoint else view

    def menu(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what fits at a place."""
        graph, spec = self._editable(asked, "a menu needs")
        return {"choices": menu(graph, spec, _text(asked, "path"))}

    def blocks(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what fits into the wires of a port: the palette."""
        graph, spec = self._editable(asked, "a palette needs")
        path, port = _text(asked, "path"), _text(asked, "port")
        after = asked.get("after") is True
        return {"blocks": fitting_blocks(graph, spec, path, port, after=after)}

    def wires(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the ports of a node, wired or not, and the values that fit them."""
        graph, spec = self._editable(asked, "wires need")
        return {"ports": fitting_values(graph, spec, _text(asked, "path"))}

    def ports(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the ports to which the outputs of a node, or the inputs of a scope, can go."""
        graph, spec = self._editable(asked, "wires need")
        inside = asked.get("inside") is True
        return {"values": fitting_ports(graph, spec, _text(asked, "path"), inside=inside)}

    def edit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the text after an edit."""
        reading, what = self._read(asked), _text(asked, "what")
        if self.opened.checkpoint:
            raise InputError(
                "a checkpoint is not edited",
                location=str(self.opened.checkpoint),
                help="save its spec as a file",
            )
        return {"text": edit(reading, lambda editor: self._edited(editor, what, asked))}

    def _edited(self, editor: Editor, what: str, asked: Mapping[str, Any]) -> str:
        """Return the text of an editor after an edit."""
        path = _text(asked, "path", "")
        params = asked.get("params") or {}
        if not isinstance(params, dict):
            raise InputError("params are an object", location="params", help="send an object")
        match what:
            case "swap":
                text = editor.swap(path, _text(asked, "use"), params)
            case "set":
                keys = {_text(asked, "key"): asked.get("value")}
                text = editor.set_all(_words(asked, "paths"), keys, [])
            case "unset":
                text = editor.set_all(_words(asked, "paths"), {}, [_text(asked, "key")])
            case "rename":
                copied = not self.opened.writable
                text = editor.rename(path, _text(asked, "name"), copied=copied)
            case "repeat":
                text = editor.repeat(path, _count(asked))
            case "tie":
                text = editor.tie(_words(asked, "weights"))
            case "remove":
                text = editor.remove(path)
            case "insert":
                use, port, after = _text(asked, "use"), _text(asked, "port"), asked.get("after")
                text = editor.insert(use, path, port, params, after=after is True)
            case "wire":
                value = None if asked.get("value") is None else _text(asked, "value")
                text = editor.wire(path, _text(asked, "port"), value)
            case _:
                raise InputError(f"no edit '{what}'", location="what", help="update the page")
        return text

    def complete(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what can be written at an offset of a text."""
        text = _text(asked, "text")
        items = complete(text, _offset(asked, text), str(self.opened.path))
        return {"items": [item.as_json() for item in items]}

    def hover(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is known of the word at an offset of a text."""
        text = _text(asked, "text")
        hovering = hover(text, _offset(asked, text), str(self.opened.path))
        return {"hover": hovering.as_json() if hovering else None}

    def format(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return a text as the shipped specs are laid out."""
        text = _text(asked, "text")
        edits = format_edits(text, str(self.opened.path))
        return {"text": apply(text, edits)}

    def save(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Write the file."""
        text = _text(asked, "text")
        return {"digest": self.opened.save(text, _text(asked, "digest"))}

    def save_as(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return a text under another name; if asked to, write it as a new file, and open that.

        It is the smallest file that extends the one on disk, or the complete text.
        """
        new, name = self._read(asked), _text(asked, "name")
        if asked.get("complete") is True:
            text = self._complete(new, name)
        else:
            old = read(self.opened.text(), str(self.opened.path))
            text, _ = variant(old, new, self.opened.extends, name)
        if asked.get("write") is not True:
            return {"text": text}
        self.opened = opened(str(self.opened.save_new(name, text)))
        self._attending = None
        return {"text": text, "file": self.file()}

    def _complete(self, reading: CheckedText, name: str) -> str:
        """Return a complete text with another name.

        Raises:
            InputError: beside the other file, the text would have another meaning.
        """
        path, text = self.opened.beside_this(name), reading.text
        with contextlib.suppress(EditError):  # a text with mistakes may have no name yet
            text = edited(text, [PatchOperation("replace", "/name", name)])
        if reading.graph is not None:
            there = read(text, str(path)).graph
            if there is None or fingerprint(there) != fingerprint(reading.graph):
                problem = "a file that the text names is not the same one in this folder"
                raise InputError(problem, location=str(path.parent), help="save a variant")
        return text

    def diff(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the differences from another spec, and the drawings of both."""
        new = self._read(asked)
        other = self._other(_text(asked, "other", ""))
        if new.graph is None or other.graph is None:
            raise InputError(
                "one of the specs has errors", location=other.source, help="correct them first"
            )
        difference = graph_diff(other.graph, new.graph)
        key = _text(asked, "key", "")
        return compared(difference, look(other, key), look(new, key))

    def _other(self, name: str) -> CheckedText:
        """Return a spec to compare with: a shipped one, or the file on disk."""
        if not name:
            return read(self.opened.text(), str(self.opened.path))
        path = find(name, *FOLDERS)
        beside = path.parent.resolve() == self.opened.folder.resolve() and path.suffix == ".json"
        if not (path.is_relative_to(SHIPPED) or beside):
            raise InputError(
                "only shipped specs and files beside this one can be compared",
                location=name,
                help="copy it there, or use 'weft diff'",
            )
        return read(read_text(path), str(path))

    def code(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the Python that computes the model."""
        reading = self._read(asked)
        if reading.graph is None:
            raise InputError(
                "the spec has errors", location=reading.source, help="correct them first"
            )
        # The generated code names modules, which need torch.
        from ....runtime.codegen.module import lower  # noqa: PLC0415

        last = asked.get("pass") or None
        graph = after(reading.graph, reading.settings, last) if last else reading.graph
        program = lower(graph)
        parts = [*(inner.source for inner in program.models), program.source]
        return {"code": "\n\n".join(parts)}

    def curves(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the curves of the run that wrote the checkpoint."""
        del asked
        return curves(self._checkpoint().folder)

    def attention(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attention weights of a layer of the checkpoint for a sentence."""
        target = asked.get("target")
        return self._checkpoint().look(
            _text(asked, "sentence", ""),
            None if target is None else _text(asked, "target"),
            _text(asked, "node", ""),
            _text(asked, "layer", ""),
        )

    def _checkpoint(self) -> Attending:
        if self._attending is None:
            raise InputError(
                "this is not a checkpoint",
                location=str(self.opened.path),
                help="open one, such as 'weft studio outputs/demo/averaged'",
            )
        return self._attending

    def times(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the measured time of each node at some sizes."""
        with self.lock:
            reading = self._read(asked)
        if reading.graph is None:
            raise InputError(
                "the spec has errors", location=reading.source, help="correct them first"
            )
        return times(reading.graph, _sizes(asked))

    def _editable(self, asked: Mapping[str, Any], what: str) -> tuple[Graph, LoadedSpec]:
        """Return the graph and the spec of a text without errors.

        Args:
            asked: the request.
            what: who needs them, with the verb.
        """
        reading = self._read(asked)
        if reading.editable is None or reading.loaded is None:
            problem = f"{what} a spec without errors"
            raise InputError(problem, location=reading.source, help="correct them first")
        return reading.editable, reading.loaded

    def _read(self, asked: Mapping[str, Any]) -> CheckedText:
        """Return the text of a request, checked."""
        text = _text(asked, "text")
        return _kept(self._reads, text, lambda: read(text, str(self.opened.path)))


Key = TypeVar("Key")
Answer = TypeVar("Answer")


def _kept(answers: dict[Key, Answer], key: Key, make: Callable[[], Answer]) -> Answer:
    """Return the answer of a key, which is made if it is none of the last ones.

    Args:
        answers: the last answers, the oldest first; at most `MOST_READS` are kept.
        key: what is asked.
        make: returns the answer.
    """
    answers[key] = answers.pop(key) if key in answers else make()
    while len(answers) > MOST_READS:
        del answers[next(iter(answers))]
    return answers[key]


def _text(asked: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a text of a request.

    Raises:
        InputError: it is missing, or no text.
    """
    value = asked.get(name, default)
    if not isinstance(value, str):
        raise InputError(f"'{name}' is missing, or no text", location=name, help="send a text")
    return value


def _sizes(asked: Mapping[str, Any]) -> dict[str, int]:
    sizes = asked.get("sizes") or {}
    if not isinstance(sizes, dict) or not all(
        isinstance(size, int) and 0 < size <= 10**9 for size in sizes.values()
    ):
        raise InputError(
            "sizes are whole numbers", location="sizes", help='such as {"B": 1, "T": 32}'
        )
    return sizes


def _offset(asked: Mapping[str, Any], text: str) -> int:
    value = asked.get("offset")
    if not isinstance(value, int) or not 0 <= value <= len(text):
        raise InputError(
            "the offset is outside of the text", location="offset", help="send another"
        )
    return value


def _count(asked: Mapping[str, Any]) -> int:
    value = asked.get("count")
    if not isinstance(value, int) or not 0 < value <= MOST_COPIES:
        problem = f"a repeat has 1 to {MOST_COPIES:,} copies"
        raise InputError(problem, location="count", help="give another number")
    return value


def _words(asked: Mapping[str, Any], name: str) -> list[str]:
    value = asked.get(name)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise InputError(f"'{name}' is not a list of texts", location=name, help="send a list")
    return value
