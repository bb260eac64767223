"""Write `docs/runs.md`, a page of every setting of a run file (`make catalogue`).

The page is generated from the settings classes, so it always matches the validation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pages import write_page
from weft.runtime.train.run import run_schema
from weft.specs.reader import FOR_EDITORS

PAGE = "runs.md"
FEW = 8
"""Number of settings up to which a table repeats those of another one."""
Schema = Mapping[str, Any]

HEAD = """# Settings of a run

`make catalogue` writes this page; `tests/tools/test_run_page.py` fails when it is out of date.
A run file is a JSON object with the settings below; required settings have no default
([a complete example](objectives.md#from-a-file-to-a-classifier)).
`weft train RUN` takes a file or the name of a shipped run, and `--set` changes any setting by path:

```
weft train multi30k-en-de --set data.root=DIR --set batch.tokens=2048 --set schedule.peak=0.002
weft schema run -o run.schema.json     # for editors: "$schema": "run.schema.json" in the file
```

The column 'values' lists the allowed values. An unknown name is an error.
"""


def page() -> str:
    """Return the text of the page."""
    schema = run_schema()
    properties = {
        name: field for name, field in schema["properties"].items() if name != FOR_EDITORS
    }
    defs = dict(schema["$defs"])
    root = _named({**schema, "properties": properties}, defs)
    defs |= {name: _named(definition, defs) for name, definition in list(defs.items())}
    return HEAD + "\n" + _Page(defs).text(root)


def _named(record: Schema, defs: dict[str, Any]) -> Schema:
    """Return a record in which the records of its settings are references.

    Args:
        record: the record, whose settings may hold records in place.
        defs: all records by name; those that are held in place are added.
    """
    fields = record.get("properties", {})
    return {**record, "properties": {name: _referring(fields[name], defs) for name in fields}}


def _referring(field: Schema, defs: dict[str, Any]) -> Schema:
    """Return the schema of a setting with references to the records that it holds in place."""
    if field.get("properties"):
        defs[field["title"]] = field
        return {"$ref": f"#/$defs/{field['title']}"}
    patterns = field.get("patternProperties", {})
    listed = field.get("items", field).get("anyOf", ())
    ways = [_referring(way, defs) for way in listed]
    if any("$ref" in way for way in ways):
        field = {**{key: value for key, value in field.items() if key != "items"}, "anyOf": ways}
    if patterns:
        patterns = {key: _referring(inner, defs) for key, inner in patterns.items()}
        field = {**field, "patternProperties": patterns}
    return field


class _Page:
    """Builds the tables of one schema."""

    def __init__(self, defs: Mapping[str, Schema]) -> None:
        self._defs = defs
        self._paths: dict[str, str] = {}
        """Name of a record to the path that titles its table."""
        self._waiting: list[tuple[str, str, Any]] = []
        self._written: list[str] = []
        """Names of the records whose tables are complete."""

    def text(self, schema: Schema) -> str:
        """Return the page of a record, with a table for each record in it."""
        parts = ["\n".join(self._table(schema, "", None))]
        while self._waiting:
            path, name, default = self._waiting.pop(0)
            record = self._defs[name]
            lead = "\n\n".join(map(_flowing, record.get("description", "").split("\n\n")))
            base = self._base(record)
            if base is None:
                self._written.append(name)
            else:
                record, lead = self._without(record, base), f"{lead}\n\n{self._see(base)}"
            title = f"\n## {self._paths[name]}\n\n{lead}\n"
            parts += [title, "\n".join(self._table(record, path, default))]
        return "\n".join(parts) + "\n"

    def _base(self, record: Schema) -> str | None:
        """Return the record above whose settings, of more than a few, the record repeats."""
        fields = record["properties"]
        for name in self._written:
            written = self._own(name)
            if len(written) > FEW and all(
                fields.get(key) == field for key, field in written.items()
            ):
                return name
        return None

    def _own(self, name: str) -> Schema:
        """Return the settings of a record, except for the one that selects it."""
        fields = self._defs[name]["properties"]
        return {key: field for key, field in fields.items() if key != "type"}

    def _without(self, record: Schema, base: str) -> Schema:
        """Return a record without the settings of another one."""
        base_fields = self._own(base)
        remaining = {
            key: field for key, field in record["properties"].items() if key not in base_fields
        }
        return {**record, "properties": remaining}

    def _see(self, base: str) -> str:
        """Return the sentence that replaces the settings of another record."""
        title = self._paths[base]
        return f"It has the settings of [{title}](#{_slug(title)}), except for `type`, and these:"

    def _table(self, record: Schema, path: str, default: Any) -> Iterator[str]:
        """Yield the lines of a table; queue tables for the records in it."""
        yield "| setting | values | default | |"
        yield "|---|---|---|---|"
        needed = record.get("required", ())
        for name, field in record["properties"].items():
            path_here = f"{path}.{name}" if path else name
            default_value = field.get("default")
            if isinstance(default, Mapping) and name in default:
                default_value = default[name]
            inner = self._inner(field)
            if inner:
                values = ", ".join(
                    self._link(path_here, option, default_value, many=len(inner) > 1)
                    for option in inner
                )
                numbers = [_values(way) for way in field.get("oneOf", ()) if way["type"] != "array"]
                values = " or ".join([*numbers, f"list of {values}"]) if numbers else values
                scalar = isinstance(default_value, int | float)
                note = f"`{json.dumps(default_value)}`" if scalar else ""
                note = "required" if name in needed else note
            else:
                values = _values(field)
                note = f"`{json.dumps(default_value)}`" if "default" in field else ""
                note = "required" if name in needed else note
            meaning = _flowing(field.get("description", "")) or self._about(inner)
            meaning = meaning or ("Selects these settings." if name == "type" else "")
            yield f"| `{name}` | {values} | {note} | {meaning} |".replace("|  |", "| |")

    def _inner(self, field: Schema) -> list[str]:
        """Return the names of the records that a setting may hold."""
        if "additionalProperties" in field and "$ref" in str(field["additionalProperties"]):
            field = field["additionalProperties"]
        if "$ref" in field.get("items", {}):
            field = field["items"]
        if "patternProperties" in field:
            [field] = field["patternProperties"].values()
        ways = [field, *field.get("anyOf", ()), *field.get("oneOf", ()), *field.get("allOf", ())]
        ways += [way["items"] for way in ways if "$ref" in way.get("items", ())]
        return [way["$ref"].rpartition("/")[2] for way in ways if "$ref" in way]

    def _link(self, path: str, name: str, default: Any, *, many: bool) -> str:
        """Return a link to the table of a record, and queue the table at its first mention."""
        before = "as " if name in self._paths else ""
        if name not in self._paths:
            kind_field = self._defs[name]["properties"].get("type", {})
            kind = kind_field.get("const", "") or " or ".join(
                filter(None, kind_field.get("enum", ()))
            )
            kind_field = f"{path}: {kind}" if many else path
            self._paths[name] = kind_field + "" * (kind_field in self._paths.values())
            self._waiting.append((kind_field, name, default if not many else None))
        title = self._paths[name]
        return f"{before}[{title}](#{_slug(title)})"

    def _about(self, inner: list[str]) -> str:
        """Return the first sentence of a record's description."""
        if len(inner) != 1:
            return ""
        first = self._defs[inner[0]].get("description", "").partition("\n\n")[0]
        return _flowing(first).partition(". ")[0].rstrip(".") + "." * bool(first)


def _slug(title: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def _values(field: Schema) -> str:
    """Return the allowed values of a setting, in words."""
    if ways := field.get("anyOf", field.get("oneOf")):
        return " or ".join(dict.fromkeys(_values(way) for way in ways))
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    kind = str(field.get("type", "anything"))
    if kind in ("integer", "number"):
        return _range("whole number" if kind == "integer" else "number", field)
    if kind == "array":
        items = field.get("items") or (field.get("prefixItems") or [{}])[0]
        return f"list of {_values(items)}"
    return {"string": "text", "boolean": "`true`, `false`", "null": "`null`"}.get(kind, kind)


def _range(words: str, field: Schema) -> str:
    """Return a number type with its bounds, in words."""
    bounds = (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"))
    values = [words]
    for key, word in (*bounds, ("exclusiveMaximum", "below")):
        if key in field:
            bound = field[key]
            values.append(f"{word} {int(bound) if bound == int(bound) else bound:,}")
    return " ".join(values)


def _flowing(text: str) -> str:
    """Return a docstring as one line for a table cell."""
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write the page into a folder."""
    write_page(PAGE, page, __doc__.splitlines()[0])


if __name__ == "__main__":
    main()
