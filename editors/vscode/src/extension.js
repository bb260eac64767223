"use strict";
// Starts `weft lsp` for JSON files, and `weft studio FILE` on demand.

const vscode = require("vscode");
const { LanguageClient, RevealOutputChannelOn } = require("vscode-languageclient/node");

const { commandLine, executable, looksLikeSpec } = require("./command");

/** @type {LanguageClient | undefined} */
let client;

function settings(more) {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  return { ...commandLine(vscode.workspace.getConfiguration("weft").get("command"), folder, more), folder };
}

async function start() {
  const { command, args, folder } = settings(["lsp"]);
  const files = vscode.workspace.getConfiguration("weft").get("files", []);
  const languages = ["json", "jsonc"];
  client = new LanguageClient(
    "weft",
    "Weft",
    executable(command, args, folder),
    {
      documentSelector: languages.map((language) => ({ language, pattern: "**/*.json" })),
      initializationOptions: { files },
      synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.json") },
      revealOutputChannelOn: RevealOutputChannelOn.Never,
    },
  );
  try {
    await client.start();
  } catch (error) {
    const help = "Install it with: pip install 'weft[lsp]', or change the setting weft.command.";
    const pressed = await vscode.window.showWarningMessage(
      `The language server '${command}' does not start (${error.message ?? error}). ${help}`,
      "Open settings",
    );
    if (pressed) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "weft.command");
    }
  }
}

async function restart() {
  await client?.stop().catch(() => undefined);
  await start();
}

/** Start the studio in a terminal, where its address and its messages are seen. */
async function studio(resource) {
  const uri = resource ?? vscode.window.activeTextEditor?.document.uri;
  if (!uri || uri.scheme !== "file") {
    await vscode.window.showWarningMessage("Save the spec to a file, then open it in the studio.");
    return;
  }
  const { command, args, folder } = settings(["studio", uri.fsPath]);
  const terminal = vscode.window.createTerminal({
    name: "Weft studio",
    cwd: folder,
    shellPath: command,
    shellArgs: args,
  });
  terminal.show(true);
}

/** Write weft.schema.json into the folder of the workspace, for editors and tools without the server. */
async function schema() {
  const { command, args, folder } = settings(["schema", "-o", "weft.schema.json"]);
  if (!folder) {
    await vscode.window.showWarningMessage("Open a folder first.");
    return;
  }
  const task = new vscode.Task(
    { type: "weft", task: "schema" },
    vscode.TaskScope.Workspace,
    "schema",
    "weft",
    new vscode.ProcessExecution(command, args, { cwd: folder }),
  );
  await vscode.tasks.executeTask(task);
}

function mark(editor) {
  const document = editor?.document;
  const spec = document?.fileName.endsWith(".json") && looksLikeSpec(document.getText());
  vscode.commands.executeCommand("setContext", "weft.isSpec", Boolean(spec));
}

/** @param {import("vscode").ExtensionContext} context */
async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("weft.studio", studio),
    vscode.commands.registerCommand("weft.restart", restart),
    vscode.commands.registerCommand("weft.schema", schema),
    vscode.window.onDidChangeActiveTextEditor(mark),
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("weft") && restart()),
  );
  mark(vscode.window.activeTextEditor);
  await start();
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
