// Steps from one box to the next: along the wires, or sideways.
import type { Box, Drawing } from "./types";

export function neighbor(drawing: Drawing, now: Box, way: "up" | "down" | "left" | "right"): Box | undefined {
  const byId = new Map(drawing.boxes.map((box) => [box.id, box]));
  const middle = (box: Box) => box.at[0] + box.at[2] / 2;
  if (way === "up" || way === "down") {
    let ends = [now.id];
    const seen = new Set(ends);
    // Pass through the points where wires branch.
    for (let turn = 0; turn < 8 && ends.length; turn++) {
      const after = drawing.wires.filter((wire) => ends.includes(way === "up" ? wire.from : wire.to)).map((wire) => (way === "up" ? wire.to : wire.from));
      const boxes = after.map((id) => byId.get(id)!).filter((box) => box && box.shape !== "join");
      if (boxes.length) return boxes.sort((a, b) => Math.abs(middle(a) - middle(now)) - Math.abs(middle(b) - middle(now)))[0];
      ends = after.filter((id) => !seen.has(id) && seen.add(id));
    }
    return undefined;
  }
  const side = way === "left" ? -1 : 1;
  return drawing.boxes
    .filter((box) => box.shape !== "join" && (middle(box) - middle(now)) * side > 4)
    .sort((a, b) => distance(a, now) - distance(b, now))[0];
}

const distance = (a: Box, b: Box): number => Math.abs(a.at[0] + a.at[2] / 2 - b.at[0] - b.at[2] / 2) + 3 * Math.abs(a.at[1] + a.at[3] / 2 - b.at[1] - b.at[3] / 2);
