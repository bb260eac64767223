"use strict";
// How the command line of weft is found and checked; without VS Code, so that node can test it.

const path = require("node:path");

/**
 * Return the program and the arguments of a command line.
 *
 * @param {unknown} setting value of the setting weft.command
 * @param {string | undefined} folder folder of the workspace
 * @param {string[]} more further arguments
 * @returns {{command: string, args: string[]}}
 */
function commandLine(setting, folder, more) {
  const valid =
    Array.isArray(setting) && setting.length > 0 && setting.every((word) => typeof word === "string" && word);
  if (!valid) {
    throw new Error('weft.command must be a list of words, such as ["weft"]');
  }
  const [program, ...args] = setting;
  const inside = folder && !path.isAbsolute(program) && /[\\/]/.test(program);
  return { command: inside ? path.join(folder, program) : program, args: [...args, ...more] };
}

/**
 * Return how the client starts the server: over the standard streams.
 *
 * It names no transport, because the client then adds the argument `--stdio`, which weft refuses.
 *
 * @param {string} command the program
 * @param {string[]} args its arguments
 * @param {string | undefined} folder where it runs
 */
function executable(command, args, folder) {
  return { command, args, options: { cwd: folder } };
}

/**
 * Return whether a text is likely a spec, a run or a study.
 *
 * @param {string} text the beginning of a file
 */
function looksLikeSpec(text) {
  return /"format"\s*:\s*\d/.test(text) && /"(nodes|extends|objective|rows)"\s*:/.test(text);
}

module.exports = { commandLine, executable, looksLikeSpec };
