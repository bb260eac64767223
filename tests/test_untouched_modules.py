"""Nothing changes a module behind the Python that was generated for it, or a choice of others.

The tests read the source of `blocks/` and `runtime/`.  `ALLOWED` lists the files in which they
would find something, with the reason why it may stay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import weft

ROOT = Path(weft.__file__).parent
METHODS = {"__class__", "forward", "begin", "step", "read_prompt", "_call_impl", "__call__"}
"""Attributes of modules that decide what they compute."""
COPIES = {"copy", "deepcopy"}
TABLES = {
    "dict", "list", "set", "defaultdict", "deque", "Counter", "OrderedDict",
    "WeakKeyDictionary", "WeakValueDictionary", "WeakSet",
}  # fmt: skip
CHANGES = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
    "setdefault", "update",
}  # fmt: skip
ALLOWED = {
    # Modules under construction, before anyone has them.
    "blocks/kernels/prepacked.py: attribute": "modules of a model under construction",
    "runtime/codegen/build.py: namespace": "a new module shares the state of another",
    "runtime/codegen/generated.py: attribute": "a generated class, before it has objects",
    "runtime/codegen/generated.py: method": "a generated class, before it has objects",
    "runtime/codegen/generated.py: namespace": "the names of a generated module",
    # Modules that are changed.
    "runtime/compile/decoder.py: namespace": "a model has its decoder, which no method reads",
    "runtime/prove/comparison.py: method": "records steps, for which torch has no hooks",
    "runtime/prove/comparison.py: namespace": "ends the recording of steps",
    "runtime/train/distributed/late_weights.py: attribute": "modules of a model under construction",
    "runtime/train/distributed/late_weights.py: namespace": "a new module shares buffers",
    "runtime/train/distributed/sharding.py: attribute": "numbers of heads, as planned",
    "runtime/train/passes.py: attribute": "probabilities that change during a run",
    # Copies.
    "runtime/codegen/build.py: copy": "tries a plug-in's module without changing it",
    "extensions/study/planning/base.py: copy": "JSON",
    "runtime/train/plan.py: copy": "JSON",
    "runtime/cli/common/command.py: copy": "the description of a field, for its option",
    "extensions/study/jobs.py: copy": "JSON",
    # Settings and tables of the process.
    "blocks/kernels/prepacked.py: table": "finds a matrix by the number in a graph",
    "blocks/registry.py: table": "plug-in blocks that were found to be valid",
    "runtime/compile/autotune.py: table": "measurements of this machine",
    "runtime/compile/torch_compile.py: setting of torch": "all compilations here need it",
    "runtime/prove/subject.py: setting of torch": "restored after a proof",
    "runtime/analysis/attention_weights.py: setting of torch": "restored after a call",
    "runtime/decode/graphed.py: table": "graphs of a model, and the memory that they share",
    "runtime/decode/threads.py: setting of torch": "restored after a search",
    "runtime/data/store/cache.py: table": "locks of folders that the process uses",
    "runtime/metrics/comet_worker.py: setting of torch": "a program of its own",
    "runtime/metrics/comet.py: table": "processes with models of another program",
    "runtime/system/memory.py: table": "the C library of the process",
    "runtime/train/device.py: setting of torch": "restored after a training",
    "runtime/train/distributed/launch.py: setting of torch": "restored after a training",
    "runtime/train/distributed/world.py: setting of torch": "a rank has a process of its own",
    # Objects that are not modules.
    "runtime/train/recipe/optimize.py: namespace": "what the scaler of float16 sets",
    "runtime/cli/common/command.py: attribute": "the settings of a command's help",
    "runtime/cli/main.py: attribute": "the streams of the process",
    "runtime/analysis/profile_summary.py: method": "seconds of forward passes",
}
"""`file: rule` to the reason."""


def is_own(node: ast.AST) -> bool:
    """Return whether an expression is `self`, whose class says what it is."""
    return isinstance(node, ast.Name) and node.id == "self"


def attribute_of(node: ast.AST) -> str:
    """Return the name of an attribute, or of a variable."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def targets_of(node: ast.AST) -> list[ast.expr]:
    """Return what an assignment or a deletion changes, tuples taken apart."""
    if isinstance(node, ast.Assign | ast.Delete):
        found = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    else:
        return []
    flat: list[ast.expr] = []
    for one in found:
        flat += one.elts if isinstance(one, ast.Tuple | ast.List) else [one]
    return flat


def is_namespace(node: ast.AST) -> bool:
    """Return whether an expression is `vars(x)` or `x.__dict__`."""
    if isinstance(node, ast.Call) and attribute_of(node.func) == "vars" and node.args:
        return not is_own(node.args[0])
    return isinstance(node, ast.Attribute) and node.attr == "__dict__" and not is_own(node.value)


def tables_of(tree: ast.Module) -> set[str]:
    """Return the names of the mutable tables of a file."""
    found = set()
    for node in tree.body:
        value = getattr(node, "value", None)
        named = [one.id for one in targets_of(node) if isinstance(one, ast.Name)]
        mutable = isinstance(value, ast.Dict | ast.List | ast.Set) or (
            isinstance(value, ast.Call) and attribute_of(value.func) in TABLES
        )
        found |= set(named) if mutable else set()
    return found


def changes_in(text: str) -> Iterator[str]:
    """Yield what a file changes, each after the rule that it breaks."""
    tree = ast.parse(text)
    tables = tables_of(tree)
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    inside = {id(inner) for function in functions for inner in ast.walk(function)}
    for node in ast.walk(tree):
        changed = tables if id(node) in inside else set[str]()
        for target in targets_of(node):
            yield from assigned(target, changed)
        if isinstance(node, ast.Global):
            yield f"global: {', '.join(node.names)}"
        if isinstance(node, ast.Call):
            yield from called(node, changed)


def assigned(target: ast.expr, tables: set[str]) -> Iterator[str]:
    """Yield the rules that an assignment to a target breaks."""
    text = ast.unparse(target)
    if isinstance(target, ast.Attribute):
        if target.attr in METHODS and not is_own(target.value):
            yield f"method: {text}"
        if text.startswith("torch."):
            yield f"setting of torch: {text}"
    entry = target.value if isinstance(target, ast.Subscript) else target
    if is_namespace(entry):
        yield f"namespace: {text}"
    if entry is not target and attribute_of(entry) in tables:
        yield f"table: {text}"


def called(node: ast.Call, tables: set[str]) -> Iterator[str]:
    """Yield the rules that a call breaks."""
    name, function = attribute_of(node.func), ast.unparse(node.func)
    if name in ("setattr", "delattr", "__setattr__"):
        named = next((one.value for one in node.args if isinstance(one, ast.Constant)), None)
        if named in METHODS or (named is None and not is_own(node.args[0])):
            yield f"attribute: {ast.unparse(node)}"
    if name in COPIES and function in (name, f"copy.{name}"):
        yield f"copy: {ast.unparse(node)}"
    if isinstance(node.func, ast.Attribute) and name in CHANGES:
        if is_namespace(node.func.value):
            yield f"namespace: {function}"
        if attribute_of(node.func.value) in tables:
            yield f"table: {function}"
    if function.startswith("torch.") and name.startswith(("set_", "use_")):
        yield f"setting of torch: {function}"


@pytest.mark.integration
def test_nothing_changes_modules_behind_the_generated_code() -> None:
    """Except what `ALLOWED` lists; every line of that list is still needed."""
    found: dict[str, list[str]] = {}
    for folder in ("blocks", "runtime", "extensions"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for one in changes_in(file.read_text(encoding="utf-8")):
                rule, _, what = one.partition(": ")
                found.setdefault(f"{file.relative_to(ROOT)}: {rule}", []).append(what)

    assert {key: found[key] for key in sorted(found.keys() - ALLOWED.keys())} == {}
    assert sorted(ALLOWED.keys() - found.keys()) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("module.__class__ = Other", "method"),
        ("model.head.forward = replaced", "method"),
        ("a, module.step = 1, replaced", "method"),
        ("setattr(self, 'forward', replaced)", "attribute"),
        ("setattr(module, 'forward', replaced)", "attribute"),
        ("object.__setattr__(module, name, replaced)", "attribute"),
        ("vars(module)['step'] = replaced", "namespace"),
        ("module.__dict__ |= {'step': replaced}", "namespace"),
        ("module.__dict__.update(step=replaced)", "namespace"),
        ("made = copy.copy(module)", "copy"),
        ("from copy import deepcopy\nmade = deepcopy(module)", "copy"),
        ("CHOSEN = {}\ndef use(model, one):\n    CHOSEN[model] = one", "table"),
        ("CHOSEN = weakref.WeakKeyDictionary()\ndef use(a):\n    CHOSEN.pop(a)", "table"),
        ("CHOSEN = 1\ndef use(one):\n    global CHOSEN\n    CHOSEN = one", "global"),
        ("torch.backends.cuda.matmul.allow_tf32 = True", "setting of torch"),
        ("torch.set_default_dtype(half)", "setting of torch"),
    ],
)
def test_a_change_is_found(text: str, rule: str) -> None:
    """Each rule finds what it is for."""
    assert [one.partition(":")[0] for one in changes_in(text)] == [rule]
