// The scene, as graphs/draw/scene.py writes it. Positions are in points.

export type Rect = [left: number, top: number, width: number, height: number];
export type Point = [x: number, y: number];

export interface Box {
  id: string;
  at: Rect;
  shape: "box" | "stack" | "carried" | "constant" | "join" | "text" | "sum" | "wave";
  family: string;
  title: string[];
  lines?: string[];
  below?: string[][];
  above?: string[][];
  frozen?: boolean;
  mask?: boolean;
  tip?: string;
  fact?: string;
}

export interface Wire {
  from: string;
  to: string;
  types: string[];
  d: string;
  mask?: boolean;
  end?: number[];
}

export interface Frame {
  path: string;
  node: string;
  at: Rect;
  copies: number | null;
  lines: string[];
}

export interface Drawing {
  width: number;
  height: number;
  boxes: Box[];
  wires: Wire[];
  frames: Frame[];
}

export interface Fact {
  name: string;
  use: string;
  doc: string;
  source: string;
  shown: string;
  title: string;
  params: Record<string, unknown>;
  repeat: number | null;
  inputs: Record<string, string>;
  outputs: Record<string, string>;
  weights: Record<string, number[]>;
  each: number;
  parameters: number;
  tied: number;
  flops: number;
  memory: number;
  at: string;
  frozen: boolean;
  shares: string;
  slots: string[];
  time?: number;
  written?: { file: string; pointer: string };
  changed?: "added" | "removed" | "changed";
}

export interface Scene {
  name: string;
  doc: string;
  parameters: number;
  flops: number;
  memory: number;
  sizes: Record<string, number>;
  ties: [string, string][][];
  foldable: Record<string, { repeat: number | null; open: boolean }>;
  facts: Record<string, Fact>;
  params: Record<string, Record<string, { doc: string; choices: unknown[] }>>;
  states: Record<string, Drawing>;
}

export type Heat = "" | "parameters" | "flops" | "memory" | "time";

export function keyOf(closed: Iterable<string>, opened: Iterable<string>): string {
  const plus = [...opened].sort().map((path) => `+${path}`);
  return [...plus, ...[...closed].sort().map((path) => `-${path}`)].join(" ");
}

export function readKey(key: string): { closed: Set<string>; opened: Set<string> } {
  const words = key.split(" ").filter(Boolean);
  const of = (mark: string) => new Set(words.filter((w) => w[0] === mark).map((w) => w.slice(1)));
  return { closed: of("-"), opened: of("+") };
}

/** A number of parameters, operations or bytes in short form: 63.1M. */
export function short(count: number, unit = ""): string {
  for (const [size, sign] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (Math.abs(count) >= size) {
      const word = sign === "G" && !unit ? "B" : sign;
      return `${(count / size).toFixed(1)}${unit ? " " : ""}${word}${unit}`;
    }
  }
  return `${+count.toFixed(1)}${unit ? " " : ""}${unit}`;
}

export const UNITS: Record<string, string> = { parameters: "", flops: "FLOPs", memory: "B", time: "s" };
