"use strict";

const assert = require("node:assert");
const path = require("node:path");
const test = require("node:test");

const { commandLine, executable, looksLikeSpec } = require("./command");

test("a program on the path keeps its name", () => {
  assert.deepEqual(commandLine(["weft"], "/work", ["lsp"]), { command: "weft", args: ["lsp"] });
});

test("a relative path starts at the folder of the workspace", () => {
  const found = commandLine([".venv/bin/python", "-m", "weft"], "/work", ["lsp"]);
  assert.deepEqual(found, { command: path.join("/work", ".venv/bin/python"), args: ["-m", "weft", "lsp"] });
});

test("a setting that is no list of words is refused", () => {
  for (const wrong of ["weft", [], [""], [1], null]) {
    assert.throws(() => commandLine(wrong, "/work", []), /weft\.command/);
  }
});

test("the client adds no argument to those of weft", () => {
  const options = executable("weft", ["lsp"], "/work");
  // As LanguageClient.createMessageTransports does for an executable.
  const TransportKind = { stdio: 0, ipc: 1, pipe: 2, socket: 3 };
  const given = [...options.args, ...(options.transport === TransportKind.stdio ? ["--stdio"] : [])];
  assert.deepEqual(given, ["lsp"]);
  assert.equal(options.transport, undefined);
});

test("only specs, runs and studies get the button of the studio", () => {
  assert.ok(looksLikeSpec('{"format": 1, "extends": "transformer-base"}'));
  assert.ok(!looksLikeSpec('{"name": "package", "version": "1.0.0"}'));
});
