// Motion from one drawing to the next: what stays moves, what comes and goes fades.
import type { Box, Drawing, Frame, Rect } from "./types";

export const DURATION = 320;
/** Number of boxes up to which a change is animated. */
const MOST = 500;

const ease = (t: number): number => (t < 0.5 ? 4 * t ** 3 : 1 - (-2 * t + 2) ** 3 / 2);
const mix = (a: Rect, b: Rect, t: number): Rect => a.map((value, i) => value + (b[i] - value) * t) as Rect;

export interface Step {
  drawing: Drawing;
  fade: Map<string, number>;
  wires: number;
}

/** Where a box comes from, or goes to: the closest thing around it in the other drawing. */
export function origin(id: string, other: Drawing): Rect | null {
  const byId = new Map(other.boxes.map((box) => [box.id, box.at]));
  const frames = new Map(other.frames.map((frame) => [frame.path, frame.at]));
  let path = id.slice(id.indexOf("/") + 1);
  for (const form of [path.replace(/\.\d[\d,\-.]*(?=\.)/g, ".*"), path.replace(/\.\*(?=\.)/g, ".0")]) {
    const found = byId.get(`node/${form}`);
    if (found) return found;
  }
  while (path) {
    path = path.slice(0, Math.max(path.lastIndexOf("."), path.lastIndexOf("/"), 0));
    const found = byId.get(`node/${path}`) ?? frames.get(path) ?? frames.get(`${path}.*`);
    if (path && found) return found;
  }
  return null;
}

export function canMove(from: Drawing, to: Drawing): boolean {
  return from.boxes.length + to.boxes.length <= MOST && !matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** The drawing at a time between 0 and 1. */
export function between(from: Drawing, to: Drawing, time: number): Step {
  const t = ease(time);
  const old = new Map(from.boxes.map((box) => [box.id, box]));
  const fade = new Map<string, number>();
  const boxes: Box[] = [];
  for (const box of to.boxes) {
    const before = old.get(box.id)?.at;
    if (!before) fade.set(box.id, t);
    const start = before ?? shrunk(origin(box.id, from), box.at);
    boxes.push({ ...box, at: mix(start, box.at, t) });
    old.delete(box.id);
  }
  for (const box of old.values()) {
    fade.set(box.id, 1 - t);
    boxes.push({ ...box, at: mix(box.at, shrunk(origin(box.id, to), box.at), t) });
  }
  const known = new Map(from.frames.map((frame) => [frame.path, frame]));
  const frames: Frame[] = to.frames.map((frame) => {
    const before = known.get(frame.path)?.at ?? from.boxes.find((box) => box.id === `node/${frame.node}`)?.at
      ?? from.frames.find((one) => one.node === frame.node)?.at;
    return { ...frame, at: before ? mix(before, frame.at, t) : frame.at };
  });
  return { drawing: { ...to, boxes, frames, wires: to.wires }, fade, wires: Math.max(0, t * 2 - 1) };
}

function shrunk(around: Rect | null, at: Rect): Rect {
  if (!around) return at;
  const x = around[0] + around[2] / 2, y = around[1] + around[3] / 2;
  return [x - at[2] / 2, y - at[3] / 2, at[2], at[3]];
}
