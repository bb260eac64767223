// Picking: several nodes of a drawing at once, with Shift and a click, a rectangle, or keys.
import type { Palette } from "./palette";
import type { Box, Drawing, Point, Rect, Scene } from "./types";

const isNode = (box: Box): boolean => box.id.startsWith("node/") && Boolean(box.fact);

/** The blocks of a node: its own, and those in its slots. */
const blocksOf = (scene: Scene, path: string): string[] =>
  [path, ...Object.keys(scene.facts).filter((one) => one.startsWith(`${path}/`))].map((one) => scene.facts[one].use);

/** Nodes that use the same blocks as one, and those that use the same block with anything in its slots. */
export function alike(scene: Scene, drawing: Drawing, box: Box): { title: string; ids: string[] }[] {
  if (!isNode(box) || !scene.facts[box.fact!].use.includes("@")) return [];
  const all = blocksOf(scene, box.fact!), nodes = drawing.boxes.filter(isNode);
  const exact = nodes.filter((one) => String(blocksOf(scene, one.fact!)) === String(all)).map((one) => one.id);
  const wide = nodes.filter((one) => scene.facts[one.fact!].use === all[0]).map((one) => one.id);
  return [{ title: all.slice(0, 2).join(" + "), ids: exact }, ...(wide.length > exact.length ? [{ title: all[0], ids: wide }] : [])].filter((one) => one.ids.length > 1);
}

/** What is picked after one more node is added, or taken out again. */
export function toggled(picked: string[], chosen: string, box: Box): string[] {
  const now = picked.length ? picked : chosen.startsWith("node/") ? [chosen] : [];
  if (!isNode(box)) return now;
  return now.includes(box.id) ? now.filter((id) => id !== box.id) : [...now, box.id];
}

/** What is picked after a rectangle was drawn around more nodes. */
export function within(drawing: Drawing, [x, y, w, h]: Rect, picked: string[]): string[] {
  const inside = drawing.boxes.filter((box) => isNode(box) && box.at[0] >= x && box.at[1] >= y && box.at[0] + box.at[2] <= x + w && box.at[1] + box.at[3] <= y + h);
  return [...new Set([...picked, ...inside.map((box) => box.id)])];
}

export const spanned = (a: Point, b: Point): Rect => [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1])];

export function Marquee({ at: [x, y, w, h], colors, scale }: { at: Rect; colors: Palette; scale: number }) {
  return <rect class="marquee" x={x} y={y} width={w} height={h} fill={colors.chosen} fill-opacity={0.08} stroke={colors.chosen} stroke-width={1.2 / scale} stroke-dasharray={`${4 / scale} ${3 / scale}`} />;
}
