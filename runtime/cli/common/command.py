"""Commands from typed functions.

A command is a function whose annotations are its options.  A parameter annotated with `FieldsOf` a
settings class becomes one option for each field of the class: help, type, bounds and default come
from the class, and the function receives a dict of the settings that the user gave.  Every command
also gets `--quiet` and `--verbose`, and turns errors into messages and exit codes.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
import typer.core
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ....specs.files import FULL, way_out
from ....specs.findings import InputError
from ....specs.wording import describe
from . import terminal

Function = TypeVar("Function", bound=Callable[..., int | None])

EXIT_CODES = (
    "Exit codes: 0 success, 1 wrong input, 2 wrong command line, 130 or 143 stopped by a signal."
)


@dataclass(frozen=True, slots=True)
class FieldsOf:
    """Marks a parameter of a command that stands for the fields of a settings class."""

    settings: type[BaseModel]
    panel: str
    """Title of these options in the help."""
    without: Collection[str] = ()
    """Fields that are not options."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Field to its option; by default, `top_k` is `--top-k`."""

    def options(self, group: str) -> Iterator[tuple[str, inspect.Parameter]]:
        """Yield the name of each field, and the parameter of its option.

        Args:
            group: name of the marked parameter; with it, names of options differ between groups.
        """
        for name, info in self.settings.model_fields.items():
            if name not in self.without:
                flag = self.flags.get(name, option_of(name))
                yield name, _option(f"{group}_{name}", flag, info, self.panel)


@dataclass(frozen=True, slots=True)
class FieldsOfAll:
    """Marks a parameter that stands for the fields of several classes, each once."""

    settings: Mapping[str, type[BaseModel]]
    """Classes by name; a class may have `flags`, field to its option."""
    panel: str
    """Title of these options in the help."""

    def options(self, group: str) -> Iterator[tuple[str, inspect.Parameter]]:
        """Yield the name of each field, and the parameter of its option."""
        fields = dict.fromkeys(
            name for form in self.settings.values() for name in form.model_fields
        )
        for name in [name for name in fields if name != "type"]:
            forms = {to: form for to, form in self.settings.items() if name in form.model_fields}
            form = next(iter(forms.values()))
            info = copy(form.model_fields[name])
            info.description = f"For {' and '.join(forms)}: {info.description or ''}"
            flag = getattr(form, "flags", {}).get(name, option_of(name))
            yield name, _option(f"{group}_{name}", flag, info, self.panel)


def option_of(field: str) -> str:
    """Return the option of a field: `--top-k` of `top_k`."""
    return "--" + field.replace("_", "-")


def _option(name: str, flag: str, info: FieldInfo, panel: str) -> inspect.Parameter:
    """Return the parameter of a field's option; an option that is not given is None."""
    inner_type = _without_none(info.annotation)
    several = get_origin(inner_type) is tuple
    item = get_args(inner_type)[0] if several else inner_type
    default = info.get_default(call_default_factory=True)
    shown = "" if default in (None, ()) else f" [default: {_plainly(default)}]"
    reading: dict[str, Any] = {}
    if item is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    else:
        reading = _reading(flag, Annotated[item, *info.metadata] if info.metadata else item)
    if several:
        reading["metavar"] = flag.strip("-").upper()
    option = typer.Option(
        flag,
        help=f"{' '.join((info.description or '').split())}{shown}",
        rich_help_panel=panel,
        show_default=False,
        **reading,
    )
    base = get_args(item)[0] if get_origin(item) is Annotated else item
    if several and get_origin(base) is Literal:
        base = str  # typer knows no lists of choices; the parser checks each text
    annotation = list[base] | None if several else base | None  # type: ignore[valid-type]
    return _parameter(name, annotation, option)


def _parameter(name: str, annotation: Any, option: Any, default: Any = None) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=Annotated[annotation, option])


def _plainly(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _without_none(annotation: Any) -> Any:
    """Return `X` for `X | None`."""
    if get_origin(annotation) in (Union, UnionType):
        [only] = [inner for inner in get_args(annotation) if inner is not type(None)]
        return only
    return annotation


_FINITE = ConfigDict(allow_inf_nan=False)


def _reading(flag: str, annotation: Any) -> dict[str, Any]:
    """Return how an option's text becomes a value: Weft's own errors, and completion of choices."""
    adapter: TypeAdapter[Any] | None = None

    def read(text: Any) -> Any:
        nonlocal adapter
        adapter = adapter or TypeAdapter(annotation, config=_FINITE)
        try:
            return adapter.validate_python(text)
        except ValidationError as error:
            problem = f"it {describe(error.errors()[0])}, not '{text}'"
            raise typer.BadParameter(problem, param_hint=f"'{flag}'") from None

    base = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if get_origin(base) is Literal:
        choices = list(get_args(base))
        read.__name__ = "choice"
        return {"parser": read, "autocompletion": lambda: choices, "metavar": "|".join(choices)}
    read.__name__ = getattr(base, "__name__", "value")
    return {"parser": read}


app = typer.Typer(
    name="weft",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
"""All commands, in the order in which the help lists them."""

SPECS = "Specs"
TRAINING = "Training"
STUDIES = "Studies"
DECODING = "Decoding"
CHECKPOINTS = "Checkpoints"
PANELS = (SPECS, TRAINING, STUDIES, DECODING, CHECKPOINTS)
"""Groups of commands, in the order of the help."""


def group(panel: str, name: str, text: str, *examples: str) -> typer.Typer:
    """Register a command that has commands of its own, such as `weft study`.

    Args:
        panel: group of commands in the help of `weft`.
        name: name of the command.
        text: its description.
        *examples: command lines to show in its help.
    """
    subcommands = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    app.add_typer(
        subcommands, name=name, help=text, epilog=_epilog(examples), rich_help_panel=panel
    )
    return subcommands


def command(
    panel: str,
    *examples: str,
    note: str = "",
    name: str = "",
    of: typer.Typer | None = None,
    several: Sequence[str] = (),
    memory: str = "give shorter inputs, or --device cpu",
) -> Callable[[Function], Function]:
    """Register a function as a command.

    Args:
        panel: group of commands in the help of `weft`.
        *examples: command lines to show in the help.
        note: a paragraph after the description.
        name: name of the command; default: the function's.
        of: the command that it belongs to, as returned by `group`; default: `weft`.
        several: options that take all words up to the next option, such as `--train a.en a.fr`.
        memory: what to set if the memory of the device is too small.
    """

    def register(function: Function) -> Function:
        called = name or function.__name__.rstrip("_").replace("_", "-")
        (of or app).command(
            called,
            help=_first_part(function) + (f"\n\n{note}" if note else ""),
            epilog=_epilog(examples),
            rich_help_panel=panel,
            cls=type("Command", (_Command,), {"several": tuple(several)}),
        )(_runner(function, memory))
        return function

    return register


class _Command(typer.core.TyperCommand):
    """A command some of whose options take several words."""

    several: tuple[str, ...] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse words, after repeating an option before each of its words."""
        words, flag = [], ""
        for at, word in enumerate(args):
            if word == "--":
                words += args[at:]
                break
            if word.startswith("-") and len(word) > 1:
                flag = word if word in self.several else ""
                words += [] if flag and args[at + 1 : at + 2] else [word]
            else:
                words += [flag, word] if flag else [word]
        return super().parse_args(ctx, words)


def _epilog(examples: Sequence[str]) -> str:
    """Return the examples and the exit codes, for the end of a help text."""
    lines = "".join(f"    {line}\n" for line in examples)
    title = "Example" if len(examples) == 1 else "Examples"
    return f"{title}:\n\n{lines}\n\n{EXIT_CODES}"


def _first_part(function: Callable[..., Any]) -> str:
    """Return a docstring up to its section on errors, which is for readers of the code."""
    return inspect.cleandoc(function.__doc__ or "").partition("\n\nRaises:")[0]


_QUIET = typer.Option("--quiet", "-q", help="Print no progress and no notices.")
_VERBOSE = typer.Option("--verbose", "-v", help="Print log messages, and where an error arose.")


def _runner(function: Callable[..., int | None], memory: str) -> Callable[..., None]:
    """Return a function with an option for each setting, which runs a command and exits."""
    groups: dict[str, dict[str, str]] = {}
    parameters = []
    options_of_command = inspect.signature(function, eval_str=True)
    for parameter in options_of_command.parameters.values():
        fields = _fields_of(parameter.annotation)
        if fields is None:
            parameters.append(_with_own_errors(parameter))
            continue
        options = dict(fields.options(parameter.name))
        groups[parameter.name] = {name: option.name for name, option in options.items()}
        parameters += options.values()
    for name, option in (("quiet", _QUIET), ("verbose", _VERBOSE)):
        parameters.append(_parameter(name, bool, option, default=False))

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        quiet, verbose = arguments.pop("quiet"), arguments.pop("verbose")
        for group, names in groups.items():
            values = {name: arguments.pop(option) for name, option in names.items()}
            arguments[group] = {
                name: value for name, value in values.items() if value not in (None, [])
            }
        with terminal.configured(quiet=quiet, verbose=verbose):
            code = _guarded(function, arguments, memory)
        raise typer.Exit(code)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _fields_of(annotation: Any) -> FieldsOf | FieldsOfAll | None:
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, FieldsOf | FieldsOfAll)), None)


def _with_own_errors(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter whose numbers and choices are read with Weft's own error messages."""
    parameter = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    if get_origin(parameter.annotation) is not Annotated:
        return parameter
    annotation, *marks = get_args(parameter.annotation)
    base = _without_none(annotation)
    if get_origin(base) is list:
        [base] = get_args(base)
        # typer knows no lists of choices; the parser checks each text.
        annotation = list[str] | None if get_origin(base) is Literal else annotation
    read = base in (int, float) or get_origin(base) is Literal
    infos = [mark for mark in marks if hasattr(mark, "param_decls")]
    if not read or not infos:
        return parameter
    [info] = infos
    name = info.metavar or parameter.name.strip("_").upper()
    flag = next(
        (
            declaration
            for declaration in (info.default, *(info.param_decls or ()))
            if _is_flag(declaration)
        ),
        name,
    )
    bounds = [mark for mark in marks if mark is not info]
    reading = _reading(flag, Annotated[base, *bounds] if bounds else base)
    for key, value in reading.items():
        if getattr(info, key) is None:
            setattr(info, key, value)
    return parameter.replace(annotation=Annotated[annotation, info])


def _is_flag(name: object) -> bool:
    return isinstance(name, str) and name.startswith("--")


def _guarded(function: Callable[..., int | None], arguments: Mapping[str, Any], memory: str) -> int:
    """Run a command and return its exit code; print errors of the input as messages."""
    terminal.report_full_disk_once()
    try:
        return function(**arguments) or 0
    except InputError as error:
        if not _is_reported_elsewhere(error):
            terminal.show_error(error)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        terminal.discard(sys.stdout)
        return 0
    except OSError as error:
        terminal.show_error(_of_the_system(error))
        return 1
    except RuntimeError as error:
        torch = sys.modules.get("torch")  # a command that never imported it has not used it
        if torch is None or not isinstance(error, torch.OutOfMemoryError):
            raise
        memory_error = InputError("the memory of the device is too small", help=memory)
        terminal.show_error(memory_error.with_traceback(error.__traceback__))
        return 1


def _is_reported_elsewhere(error: InputError) -> bool:
    """Return whether another process of a training reports the error."""
    module = sys.modules.get("weft.runtime.train.distributed.world")
    return module is not None and isinstance(error, module.FailedElsewhereError)


def _of_the_system(error: OSError) -> InputError:
    """Return an error of the operating system, such as a full disk, as an error of the input.

    Raises:
        OSError: it has no number, so it does not come from the system.
    """
    if error.errno is None:
        raise error
    path = "" if error.filename is None else os.fsdecode(error.filename)
    problem = f"cannot read or write{' it' if path else ''}: {error.strerror}"
    help_ = way_out(error, "choose another path" if path else "")
    help_ += "; weft train continues with --resume" * (error.errno in FULL)
    return InputError(problem, location=path, help=help_)


def wrong(flag: str, problem: str) -> typer.BadParameter:
    """Return the error of a wrong command line, which exits with code 2.

    Args:
        flag: the option that is wrong, such as `--axes`.
        problem: what is wrong and what to write instead.
    """
    return typer.BadParameter(problem, param_hint=f"'{flag}'")
