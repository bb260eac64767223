// Requests to the server of the studio. The token is in the address, behind the number sign.
import type { Scene } from "./types";
import type { Value } from "./wiring";

const token = (() => {
  const given = location.hash.slice(1);
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return given || sessionStorage.getItem("token") || "";
})();

export class Refusal extends Error {
  constructor(message: string, readonly help: string, readonly status: number) { super(message); }
}

async function ask<T>(path: string, body?: unknown): Promise<T> {
  const response = await fetch(`api/${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const value = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(value.error?.problem ?? `the server answered ${response.status}`, value.error?.help ?? "", response.status);
  return value as T;
}

export interface File {
  text: string; digest: string; path: string; name: string; writable: boolean; folder: string;
  specs: string[]; passes: string[]; checkpoint: string | null;
}
export interface TextEdit { start: number; end: number; new: string }
export interface Finding {
  start: number; end: number; severity: "error" | "warning"; code: string; message: string; problem: string; pointer: string; here: boolean;
  fixes: { title: string; edits: TextEdit[]; certain: boolean }[];
}
export interface Look { findings: Finding[]; scene?: Scene; key?: string; partial?: boolean; editable?: boolean; missing?: string[] }
export interface Choice {
  use: string; doc: string; family: string; fits: boolean; proposed: Record<string, unknown>;
  reason: string; parameters: number; flops: number; kept: number; around: string;
}
/** A port, and the values that it can read; it reads none now if it is not wired. */
export interface Port { port: string; optional: boolean; now: string | null; values: string[] }
export interface Piece { use: string; doc: string; family: string; proposed: Record<string, unknown>; parameters: number }
export interface Compared {
  equal: boolean; old: Scene; new: Scene; lines: { mark: string; place: string; text: string }[];
  parameters: [number, number]; flops: [number, number];
}
export interface Completion { label: string; kind: string; new: string; start: number; end: number; detail: string; doc: string; rank: number }

/** Updates and values. */
export type Curve = [number[], number[]];
export interface Curves { update: number; train: Record<string, Curve>; valid: Record<string, Curve>; best: string }
export interface Heads {
  source: string; target: string; layers: { path: string; node: string }[]; shown: number;
  title: string; reads: string[]; read: string[]; heads: number[][][];
}
export interface Times { nodes: Record<string, number>; seconds: number; passes: number; device: string }

/** The server counts characters, and the editor units of UTF-16: they differ beyond U+FFFF. */
export const unitsOf = (text: string, characters: number): number =>
  /[\ud800-\udbff]/.test(text) ? [...text].slice(0, characters).join("").length : characters;
export const charactersOf = (text: string, units: number): number =>
  /[\ud800-\udbff]/.test(text) ? [...text.slice(0, units)].length : units;

/** The file, and the answer to its text, unless it is refused. */
export interface Start { file: File; look?: Look }

/** What the page begins with is asked for as soon as this module is read. */
export const started = ask<Start>("start");
// The studio shows a refusal; without this, the browser calls it unhandled if it arrives before that.
started.catch(() => undefined);

export const api = {
  file: () => ask<File>("file"),
  look: (body: { text: string; key: string; sizes: Record<string, number>; pass: string }) => ask<Look>("look", body),
  menu: (text: string, path: string) => ask<{ choices: Choice[] }>("menu", { text, path }),
  blocks: (text: string, path: string, port: string, after: boolean) => ask<{ blocks: Piece[] }>("blocks", { text, path, port, after }),
  wires: (text: string, path: string) => ask<{ ports: Port[] }>("wires", { text, path }),
  ports: (text: string, path: string, inside: boolean) => ask<{ values: Value[] }>("ports", { text, path, inside }),
  times: (text: string, sizes: Record<string, number>) => ask<Times>("times", { text, sizes }),
  curves: () => ask<Curves>("curves", {}),
  attention: (asked: { sentence: string; target: string | null; node: string; layer: string }) => ask<Heads>("attention", asked),
  edit: (text: string, edit: Record<string, unknown>) => ask<{ text: string }>("edit", { text, ...edit }),
  save: (text: string, digest: string) => ask<{ digest: string }>("save", { text, digest }),
  saveAs: (text: string, name: string, complete: boolean, write: boolean) => ask<{ text: string; file?: File }>("save_as", { text, name, complete, write }),
  diff: (text: string, other: string, key: string) => ask<Compared>("diff", { text, other, key }),
  format: (text: string) => ask<{ text: string }>("format", { text }),
  code: (text: string, pass: string) => ask<{ code: string }>("code", { text, pass }),
  complete: (text: string, offset: number) => ask<{ items: Completion[] }>("complete", { text, offset }),
  hover: (text: string, offset: number) => ask<{ hover: { start: number; end: number; markdown: string } | null }>("hover", { text, offset }),
};
