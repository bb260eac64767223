"""The tools for agents, driven by the client of the Model Context Protocol's SDK."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import weft

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from weft.extensions.editor.agents import server

Call = Callable[..., Any]

PARAMETERS = weft.load("transformer-tiny").graph().parameters()
DRAFT: dict[str, Any] = {
    "format": 1,
    "extends": "transformer-tiny",
    "name": "prenorm-rotary",
    "params": {"position": {"use": "droput@1"}},
    "patch": [
        {"select": "**[use=sublayer@1]", "set": {"params.ordr": "pre"}},
        {
            "select": "*.*.self_attention/f",
            "expect": 3,
            "set": {"fill.position": {"use": "rotary@1"}},
        },
    ],
}
"""A pre-norm Transformer with rotary positions, with three mistakes."""


def conversation(folder: Path, steps: Callable[[Call], Awaitable[None]]) -> None:
    """Connect a client to a server of the folder, and run steps with a function that calls tools.

    The function returns the structured content of an answer, or else its text or picture, and
    `refused: ` with the reason if there was a mistake.
    """

    async def talk() -> None:
        async with Client(server(folder)) as client:

            async def call(tool: str, **arguments: Any) -> Any:
                result = await client.call_tool(tool, arguments)
                [first] = result.content
                text = getattr(first, "text", first)
                return f"refused: {text}" if result.is_error else result.structured_content or text

            await steps(call)

    asyncio.run(talk())


def test_an_agent_repairs_a_draft_by_its_findings(tmp_path: Path) -> None:
    """It writes a pre-norm rotary variant; each change is one that a finding names."""
    path = tmp_path / "my.json"

    async def steps(call: Call) -> None:
        draft = json.loads(json.dumps(DRAFT))
        path.write_text(json.dumps(draft))
        [finding] = (await call("check", spec="my.json"))["findings"]
        assert finding["help"].endswith('write "expect": 2')

        draft["patch"][1]["expect"] = 2
        path.write_text(json.dumps(draft))
        corrected = await call("fix", spec="my.json", write=True)
        assert [f["problem"] for f in corrected["fixed"]] == [
            "sublayer@1 has no param 'ordr'",
            "unknown block 'droput@1'",
        ]
        assert {finding["level"] for finding in corrected["findings"]} == {"warning"}

        assert (await call("check", spec="my.json"))["valid"]
        nodes = (await call("show", spec="my.json"))["result"]
        assert nodes.count("order=pre") == 5
        assert "rotary@1" in (await call("show", spec="my.json", view="expanded"))["result"]

    conversation(tmp_path, steps)
    assert (
        weft.load(path).graph().parameters() == weft.load("transformer-tiny").graph().parameters()
    )


def test_a_swap_is_written_into_a_new_file_only(tmp_path: Path) -> None:
    """The variant opens, and the answer to a second call names the file that exists."""
    call = {
        "spec": "transformer-tiny",
        "select": "encoder.**[use=attention@1]",
        "use": "attention@1",
        "params": {"kv_heads": 2},
        "out": "gqa.json",
    }

    async def steps(tool: Call) -> None:
        assert "spec" in await tool("swap", **call)
        assert "gqa.json exists" in await tool("swap", **call)

    conversation(tmp_path, steps)
    graph = weft.load(tmp_path / "gqa.json").graph()
    # Per layer, keys and values of 2 of 4 heads: 2 weights of 64 x 128 and biases of 64 less.
    assert (
        weft.load("transformer-tiny").graph().parameters() - graph.parameters() == 4 * 2 * 64 * 129
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("check", {"spec": "../secret.json"}, "is not in"),
        ("check", {"spec": "link.json"}, "is not in"),
        ("draw", {"spec": "transformer-tiny", "out": "../picture.svg"}, "is not in"),
        ("fix", {"spec": "transformer-tiny", "write": True}, "does not exist in"),
        ("show", {"spec": "no.json"}, "no such"),
        ("show", {"spec": "other.json"}, "is not a spec"),
        ("blocks", {"name": "attentoin"}, "did you mean 'attention@1'"),
        ("swap", {"spec": "transformer-tiny", "select": "x", "use": "attention@1"}, "x"),
    ],
)
def test_what_an_agent_may_not_or_cannot_do_is_said(
    tool: str, arguments: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """Nothing outside of the folder is read or written, also through a link."""
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.json").write_text('{"key": "value"}')
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    (folder / "other.json").write_text('{"key": 1}')

    async def steps(call: Call) -> None:
        answer = await call(tool, **arguments)
        assert answer.startswith("refused: ")
        assert reason in answer

    conversation(folder, steps)
    assert [path.name for path in tmp_path.iterdir() if path != folder] == ["secret.json"]


def test_tools_tell_what_they_take(tmp_path: Path) -> None:
    """Tools that read have the hint that they do."""

    async def talk() -> None:
        async with Client(server(tmp_path)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        hints = {
            n for n, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint
        }
        assert hints == {"check", "show", "blocks", "explain"}
        assert {*tools} - hints == {"fix", "draw", "swap"}
        assert all(tool.description for tool in tools.values())

    asyncio.run(talk())


@pytest.mark.integration
def test_the_command_speaks_over_its_standard_streams(tmp_path: Path) -> None:
    """As the program of an agent starts it."""
    command = [sys.executable, "-m", "weft", "mcp", "--folder", str(tmp_path)]

    async def talk() -> str:
        async with Client(StdioServerParameters(command=command[0], args=command[1:])) as client:
            result = await client.call_tool("explain", {"code": "T03"})
        [text] = (getattr(part, "text", "") for part in result.content)
        return str(text)

    text = asyncio.run(talk())
    page = (Path(weft.__file__).parent / "docs/errors.md").read_text()
    assert text.splitlines()[-1] in page
