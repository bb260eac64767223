"""Settings found by name: shipped ones in an explicit list, others from installed packages.

Columns, readers, metrics, predictors, trackers and exporters are classes of this form: the fields
are the settings in a file or on the command line, and the methods do the work.  A file selects one
by name, `"bleu"`, or with settings, `{"type": "bleu", "tokenize": "char"}`; it can never name code.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic import ValidationError as Invalid
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ...blocks.entry_points import imported, loaded, origin_of, package_of, points_of
from ...specs.findings import InputError, did_you_mean, pointer
from ...specs.wording import Forms, SettingError, form_findings, own_errors


class Named(BaseModel):
    """Base class of settings that are selected by `type`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    short: ClassVar[str] = ""
    """Field that `"TYPE:TEXT"` sets to `TEXT`; `""` if this form is not supported."""

    type: str
    """Name of the implementation; subclasses declare it as a `Literal` with a default."""


T = TypeVar("T", bound=BaseModel)


class Plugins(Generic[T]):
    """The implementations of one contract."""

    def __init__(
        self, what: str, group: str, base: type[T], shipped: Mapping[str, str], package: str
    ) -> None:
        """Store the list; nothing is imported until a name is used.

        Args:
            what: the contract in a message, such as `metric`.
            group: entry-point group, such as `weft.metrics`; the name of an entry point is that
                of the settings, their `type` if they have one; its value is `package.file:Class`.
            base: base class of every implementation.
            shipped: name to `file:Class`, relative to `package`.
            package: package that contains the shipped files.
        """
        self.what, self.group, self.base = what, group, base
        self.shipped, self._package = dict(shipped), package
        self.find = functools.cache(self._find)

    def names(self) -> list[str]:
        """Return every name, shipped ones first.

        Raises:
            InputError: an entry point has the name of another implementation.
        """
        return [*self.shipped, *self._installed()]

    def lines(self) -> dict[str, str]:
        """Return one line about each implementation, by name."""
        shipped = shipped_lines(self.shipped, self._package)
        return {**dict(shipped), **dict(installed_lines(self.group))}

    def _installed(self) -> dict[str, EntryPoint]:
        """Return the entry points by name.

        Raises:
            InputError: a name is taken.
        """
        points: dict[str, EntryPoint] = {}
        for point in points_of(self.group):
            other = "weft" if point.name in self.shipped else ""
            if point.name in points:
                other = package_of(points[point.name])
            if other:
                raise InputError(
                    f"a {self.what} with the name '{point.name}' already exists, from {other}",
                    location=origin_of(point),
                    help=f"rename the entry point; or run 'pip uninstall {package_of(point)}'",
                )
            points[point.name] = point
        return points

    def _find(self, name: str) -> type[T]:
        """Return the class with a name.

        Raises:
            InputError: the name is unknown, or its plug-in is broken.
        """
        installed = self._installed()
        if name in self.shipped:
            file, _, attribute = self.shipped[name].partition(":")
            shipped: type[T] = getattr(importlib.import_module(file, self._package), attribute)
            return shipped
        if name not in installed:
            help_ = did_you_mean(name, [*self.shipped, *installed])
            raise InputError(f"no {self.what} '{name:.100}'", help=help_)
        return self._loaded(installed[name])

    def _loaded(self, point: EntryPoint) -> type[T]:
        """Return the class of an entry point.

        Raises:
            InputError: it cannot be imported, or does not follow the contract.
        """
        plugin_class: type[T] = loaded(point, self.base)
        field = plugin_class.model_fields["type"] if issubclass(self.base, Named) else None
        if field and (*get_args(field.annotation), field.default) != (point.name, point.name):
            raise InputError(
                f"the type of '{point.value}' is not '{point.name}'",
                location=origin_of(point),
                help=f'declare \'type: Literal["{point.name}"] = "{point.name}"\'',
            )
        return plugin_class

    def parse(self, value: object, location: str) -> T:
        """Return the implementation that a JSON value selects.

        Args:
            value: a name, an object with `type` and settings, or an instance, which is returned.
            location: file and pointer of the value, for messages.

        Raises:
            InputError: the name is unknown, a setting is wrong, or a plug-in is broken.
        """
        try:
            return self.validate(value)
        except SettingError as error:
            at = pointer(*error.at)
            raise InputError(str(error), location=f"{location}{at}", help=error.help) from None
        except Invalid as invalid:
            form = self.find(value if isinstance(value, str) else value["type"])  # type: ignore[index]
            [finding, *_] = (
                finding
                for error in own_errors(invalid.errors())
                for finding in form_findings(error, form, value, "")
            )
            at = f"{location}{finding.at}"
            raise InputError(finding.problem, location=at, help=finding.help) from None

    def validate(self, value: object) -> T:
        """Return the implementation that a JSON value selects, as a validator of pydantic.

        Raises:
            SettingError: the value selects nothing; its `at` leads to the wrong part.
            ValidationError: a setting is wrong.
            InputError: a plug-in is broken.
        """
        if isinstance(value, self.base):
            return value
        if isinstance(value, str):
            value = self._expanded(value)
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            msg = f"a {self.what} must be a name or an object with 'type'"
            raise SettingError(msg, help_=did_you_mean("", self.names()))
        name = value["type"]
        if name not in self.names():
            help_ = did_you_mean(name, self.names())
            msg = f"no {self.what} '{name:.100}'"
            raise SettingError(msg, "type", help_=help_)
        return self.settings(name, value)

    def settings(self, name: str, value: Mapping[str, Any]) -> T:
        """Return the settings of an implementation.

        Raises:
            ValidationError: a setting is wrong.
            InputError: there is no such implementation, or its plug-in is broken.
        """
        return self.find(name).model_validate_json(json.dumps(dict(value)), strict=True)

    def forms(self) -> dict[str, type[T]]:
        """Return all classes by name, but those of broken plug-ins."""
        forms = {}
        for name in self.names():
            with suppress(InputError):
                forms[name] = self.find(name)
        return forms

    def _expanded(self, text: str) -> dict[str, str]:
        """Return the object that a short form stands for: `"loss:lm"` sets one field."""
        name, colon, argument = text.partition(":")
        short = getattr(self.find(name), "short", "") if colon and name in self.names() else ""
        return {"type": name, short: argument} if short else {"type": text}


class Selected(Forms):
    """Annotation of a pydantic field that holds one of the implementations.

    `metric: Annotated[Metric, Selected(METRICS)]` accepts what `Plugins.parse` accepts, dumps the
    settings with their `type`, and lists the settings of each in the JSON Schema.
    """

    def __init__(self, plugins: Plugins[Any]) -> None:
        """Store the implementations."""
        self._plugins = plugins

    def forms(self) -> list[type[BaseModel]]:
        """Return the classes of settings among which a value selects."""
        return [*self._plugins.forms().values()]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema that validates and dumps a value."""
        del source, handler
        return core_schema.no_info_plain_validator_function(
            self._plugins.validate,
            serialization=core_schema.plain_serializer_function_ser_schema(dumped, info_arg=True),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON Schema: a name, or the settings of an implementation."""
        del schema
        return {
            "anyOf": [
                {"type": "string"},
                *(schema_of(property_, handler) for property_ in self.forms()),
            ]
        }


def schema_of(form: type[BaseModel], handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """Return the JSON Schema of settings, for the schema of what contains them."""
    # The handler does not call the method of the class, which may leave settings out.
    return form.__get_pydantic_json_schema__(form.__pydantic_core_schema__, handler)


def dumped(value: BaseModel, info: core_schema.SerializationInfo) -> dict[str, Any]:
    """Return settings as a serializer of what contains them does, always with their `type`."""
    values = value.model_dump(
        mode=info.mode,
        by_alias=info.by_alias,
        exclude_unset=info.exclude_unset,
        exclude_defaults=info.exclude_defaults,
    )
    return {"type": value.type, **values} if isinstance(value, Named) else values


def implementation_of(settings: BaseModel, base: type[Any]) -> Any:
    """Return the class that settings name as their `module`.

    Args:
        settings: settings with `module`, as `file:Class`, relative to the package of the class
            that names it if it begins with a dot.
        base: base class of what it must be.

    Raises:
        InputError: it cannot be imported, or is something else.
    """
    owner = next(base for base in type(settings).__mro__ if "module" in vars(base))
    file, _, name = vars(owner)["module"].partition(":")
    package, location = owner.__module__.rpartition(".")[0], f"{owner.__module__}.{owner.__name__}"
    return imported(
        lambda: getattr(importlib.import_module(file, package), name),
        f"{file}:{name}",
        base,
        location,
        "correct or upgrade the package",
    )


def shipped_lines(shipped: Mapping[str, str], package: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each shipped implementation of a contract.

    Args:
        shipped: name to `file:Class`, relative to `package`.
        package: package that contains the files.
    """
    for name, target in shipped.items():
        file, _, attribute = target.partition(":")
        yield name, _classes(file, package).get(attribute, "")


def installed_lines(group: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each implementation that an installed package adds.

    One that cannot be imported is described by its error.  Those of Weft's extensions are not
    imported, which may load torch.

    Args:
        group: entry-point group, such as `weft.metrics`.
    """
    for point in points_of(group):
        package = package_of(point)
        if package == "weft":
            yield from shipped_lines({point.name: point.value}, package)
            continue
        try:
            text = _sentence(point.load().__doc__)
        except Exception as error:  # noqa: BLE001 - the list shows what a plug-in raises
            first = str(error).partition("\n")[0]
            text = f"cannot be imported: {type(error).__name__}: {first:.200}"
        yield point.name, f"{text} (from {package})"


@functools.cache
def _classes(file: str, package: str) -> dict[str, str]:
    """Return the first line about each class of a file."""
    spec = find_spec(file, package)
    if spec is None or spec.origin is None:
        return {}
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return {
        node.name: _sentence(ast.get_docstring(node))
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _sentence(doc: str | None) -> str:
    """Return the first sentence of the first line of a docstring, without its full stop."""
    return (doc or "").strip().partition("\n")[0].partition(".  ")[0].rstrip(".")
