// Wiring: a wire that is drawn from a value to a port that fits, with the mouse or the keyboard.
import { useEffect, useMemo, useState } from "preact/hooks";
import { FONT } from "./draw";
import type { Palette } from "./palette";
import type { Box, Drawing, Frame, Point, Rect, Scene } from "./types";

/** A value, and the ports to which it can be wired. */
export interface Value { value: string; type: string; ports: { path: string; port: string; now: string | null }[] }
export interface Wiring {
  /** Asks the server which ports fit the values that a node gives, or that a template or the spec takes. */
  ports: (path: string, inside: boolean) => Promise<Value[]>;
  connect: (path: string, port: string, value: string) => void;
}
/** A place where a value leaves a box or a frame, or enters a frame: then it is inside of the path. */
export interface Outlet { path: string; inside: boolean; name: string; at: Point }
export interface Inlet { id: string; path: string; port: string; now: string | null; at: Point }
interface Thread { outlet: Outlet; values: Value[] | null; end: Point | null; near: number; keyboard: boolean }

/** Distance in pixels within which a port takes the wire. */
const REACH = 28;

const spread = (at: Rect, i: number, count: number): number => at[0] + (at[2] * (i + 1)) / (count + 1);

/** The outlets of a box, or of an open frame. */
export function outletsOf(scene: Scene, box: Box | undefined, frame: Frame | undefined): Outlet[] {
  if (box?.id.startsWith("input/")) return [{ path: "", inside: true, name: box.id.slice(6), at: [spread(box.at, 0, 1), box.at[1]] }];
  const path = box ? (box.id.startsWith("node/") ? box.fact : undefined) : frame?.node, at = box?.at ?? frame?.at;
  const fact = path && !path.includes("/") ? scene.facts[path] : undefined;
  const along = (names: string[], inside: boolean): Outlet[] => names.map((name, i) => ({
    path: inside ? frame!.path : path!, inside, name, at: [spread(at!, i, names.length), at![1] + (inside ? at![3] : 0)],
  }));
  return [...along(Object.keys(fact?.outputs ?? {}), false), ...(frame ? along(Object.keys(fact?.inputs ?? {}), true) : [])];
}

const nameOf = (value: string, inside: boolean): string => (inside ? value : value.slice(value.indexOf(".") + 1));
/** The index of the value that leaves an outlet. */
const indexOf = (values: Value[], { inside, name }: Outlet): number => values.findIndex(({ value }) => nameOf(value, inside) === name);

function inletsOf(drawing: Drawing, value: Value | undefined): Inlet[] {
  const found: Inlet[] = [];
  const paths = [...new Set((value?.ports ?? []).map((one) => one.path))];
  for (const path of paths) {
    const ports = value!.ports.filter((one) => one.path === path);
    const places: [string, Rect][] = drawing.boxes.filter((box) => box.fact === path && box.id.startsWith("node/")).map((box) => [box.id, box.at]);
    if (!places.length) places.push(...drawing.frames.filter((frame) => frame.node === path).map((frame) => [`node/${path}`, frame.at] as [string, Rect]));
    for (const [id, at] of places) ports.forEach((one, i) => found.push({ id, ...one, at: [spread(at, i, ports.length), at[1] + at[3]] }));
  }
  return found;
}

export function useWiring(wiring: Wiring | undefined, drawing: Drawing, scale: number, pointOf: (event: PointerEvent) => Point, say: (text: string) => void) {
  const [thread, setThread] = useState<Thread | null>(null);
  const value = thread?.values?.[indexOf(thread.values, thread.outlet)];
  const inlets = useMemo(() => inletsOf(drawing, value), [drawing, value]);
  const cancel = () => { if (thread) say("no wire drawn"); setThread(null); };
  const tell = (some: Inlet[], near: number, name: string) => say(some[near]
    ? `${name} to ${some[near].port} of ${some[near].path}, ${near + 1} of ${some.length}; Enter wires, Escape cancels` : `nothing takes ${name}`);
  const begin = (outlet: Outlet, keyboard: boolean) => {
    if (!wiring) return;
    setThread({ outlet, values: null, end: null, near: keyboard ? 0 : -1, keyboard });
    wiring.ports(outlet.path, outlet.inside).then((values) => {
      setThread((now) => (now?.outlet === outlet ? { ...now, values } : now));
      const first = values[indexOf(values, outlet)];
      if (keyboard) tell(inletsOf(drawing, first), 0, first.value);
    }, () => setThread((now) => (now?.outlet === outlet ? null : now)));
  };
  const finish = () => {
    const end = thread && inlets[thread.near];
    if (end && value && end.now !== value.value) { wiring!.connect(end.path, end.port, value.value); say(`${end.port} of ${end.path} reads ${value.value}`); }
    setThread(null);
  };
  const nearest = (at: Point): number => {
    const distances = inlets.map((one) => Math.hypot(one.at[0] - at[0], one.at[1] - at[1]) * scale);
    const best = distances.indexOf(Math.min(...distances));
    if (best >= 0 && distances[best] <= REACH) return best;
    // Anywhere on a box that has one port that fits.
    const inside = (box: Box) => at[0] >= box.at[0] && at[0] <= box.at[0] + box.at[2] && at[1] >= box.at[1] && at[1] <= box.at[1] + box.at[3];
    const box = drawing.boxes.find(inside), some = inlets.filter((one) => one.id === box?.id);
    return some.length === 1 ? inlets.indexOf(some[0]) : -1;
  };
  useEffect(() => {
    if (!thread || thread.keyboard) return;
    const move = (event: PointerEvent) => { const end = pointOf(event); setThread((now) => now && { ...now, end, near: nearest(end) }); };
    const keys = (event: KeyboardEvent) => { if (event.key === "Escape") { event.stopPropagation(); event.preventDefault(); cancel(); } };
    addEventListener("pointermove", move);
    addEventListener("pointerup", finish);
    addEventListener("pointercancel", cancel);
    addEventListener("keydown", keys, true);
    return () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", finish);
      removeEventListener("pointercancel", cancel);
      removeEventListener("keydown", keys, true);
    };
  });
  /** Takes a key while a wire is drawn with the keyboard; says whether it did. */
  const key = (name: string, back: boolean): boolean => {
    if (!thread) return false;
    const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Tab: back ? -1 : 1 }[name];
    if (name === "Escape") cancel();
    else if (name === "Enter") finish();
    else if (name === "w" && thread.values) {
      const after = thread.values[(indexOf(thread.values, thread.outlet) + 1) % thread.values.length];
      setThread({ ...thread, outlet: { ...thread.outlet, name: nameOf(after.value, thread.outlet.inside) }, near: 0 });
      tell(inletsOf(drawing, after), 0, after.value);
    } else if (way && inlets.length) {
      const near = (thread.near + way + inlets.length) % inlets.length;
      setThread({ ...thread, near });
      tell(inlets, near, value!.value);
    } else if (!way) return false;
    return true;
  };
  const lit = useMemo(() => (thread?.values ? new Set(inlets.map((one) => one.id)) : null), [thread?.values, inlets]);
  return { thread, inlets, lit, begin, key, cancel };
}

export function Outlets({ outlets, colors, scale, begin }: { outlets: Outlet[]; colors: Palette; scale: number; begin: (outlet: Outlet) => void }) {
  const size = Math.min(9, Math.max(4.5, 5.5 / scale));
  return (
    <g>
      {outlets.map((one) => (
        <circle key={`${one.inside} ${one.path} ${one.name}`} class="outlet" data-outlet={`${one.inside ? "in " : ""}${one.path} ${one.name}`.replace(/ +/g, " ")} cx={one.at[0]} cy={one.at[1]} r={size} fill={colors.white} stroke={colors.chosen} stroke-width={2}
          onPointerDown={(event) => { event.stopPropagation(); event.preventDefault(); if (event.button === 0) begin(one); }}>
          <title>drag {one.name} to a port</title>
        </circle>
      ))}
    </g>
  );
}

export function Thread({ thread, inlets, colors, scale }: { thread: Thread; inlets: Inlet[]; colors: Palette; scale: number }) {
  const from = thread.outlet.at, near = inlets[thread.near];
  const to = near?.at ?? thread.end ?? from;
  const bend = Math.max(20, Math.abs(to[1] - from[1]) / 2);
  const size = Math.min(9, Math.max(4.5, 5.5 / scale)), letters = Math.min(18, Math.max(10, 11 / scale));
  return (
    <g class="thread" pointer-events="none" font-family={FONT}>
      <path d={`M${from[0]},${from[1]}C${from[0]},${from[1] - bend} ${to[0]},${to[1] + bend} ${to[0]},${to[1]}`} fill="none" stroke={colors.chosen} stroke-width={2.2 / Math.min(1, scale)} stroke-dasharray={near ? undefined : "6 4"} />
      <circle cx={from[0]} cy={from[1]} r={size} fill={colors.chosen} />
      {inlets.map((one, i) => (
        <g key={`${one.id} ${one.port}`} data-inlet={`${one.path} ${one.port}`}>
          <circle cx={one.at[0]} cy={one.at[1]} r={i === thread.near ? size * 1.5 : size} fill={i === thread.near ? colors.chosen : colors.white} stroke={colors.chosen} stroke-width={2} />
          <text x={one.at[0]} y={one.at[1] + size + letters * 1.15} font-size={letters} text-anchor="middle" fill={colors.chosen} paint-order="stroke" stroke={colors.ground} stroke-width={3}>{one.port}</text>
        </g>
      ))}
    </g>
  );
}
