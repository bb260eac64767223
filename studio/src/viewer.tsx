// The viewer: one drawing to pan, zoom, fold, search and read.
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Card } from "./card";
import { Drawn, valueOf, type Looks, type Marks } from "./draw";
import { pngOf, save, svgOf } from "./export";
import { pdfOf } from "./pdf";
import { between, canMove, DURATION, origin, type Step } from "./motion";
import { heatColor, palette } from "./palette";
import { neighbor } from "./steps";
import { alike, Marquee, spanned, toggled, within } from "./picking";
import { keyOf, readKey, short, UNITS, type Box, type Drawing, type Frame, type Heat, type Point, type Rect, type Scene } from "./types";
import { Outlets, outletsOf, Thread, useWiring, type Wiring } from "./wiring";

export interface Props {
  scene: Scene;
  stateKey: string;
  /** Shows another state; says whether it can be shown. */
  onKey: (key: string) => void;
  /** The states that can be shown, or null if every one can. */
  known: Set<string> | null;
  dark: boolean;
  onDark: (dark: boolean) => void;
  chosen: string;
  onChoose: (id: string) => void;
  /** Several nodes that are picked, of which the chosen one was the last. */
  picked?: string[];
  onPick?: (ids: string[]) => void;
  several?: (boxes: Box[]) => ComponentChildren;
  wrong?: Map<string, string>;
  stale?: boolean;
  inspector?: (box: Box) => ComponentChildren;
  tools?: ComponentChildren;
  onMenu?: (box: Box) => void;
  /** Lets wires be drawn. */
  wiring?: Wiring;
  /** Measures the time of the nodes. */
  onMeasure?: () => void;
  measuring?: boolean;
  /** Number of measurements; a new one is shown. */
  measured?: number;
}

interface Camera { x: number; y: number; k: number }

const HEATS: [Heat, string][] = [["", "no heat"], ["parameters", "parameters"], ["flops", "FLOPs"], ["memory", "memory"], ["time", "time"]];

export function Viewer(props: Props) {
  const { scene, stateKey, onKey, known, dark, chosen, onChoose } = props;
  const target = scene.states[stateKey] ?? Object.values(scene.states)[0];
  const colors = useMemo(() => palette(dark), [dark]);
  const holder = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState<Point>([800, 600]);
  const [camera, setCamera] = useState<Camera | null>(null);
  const [step, setStep] = useState<Step | null>(null);
  const [wanted, setHeat] = useState<Heat>("");
  const hasTime = useMemo(() => Object.values(scene.facts).some((fact) => fact.time !== undefined), [scene]);
  const heat = wanted === "time" && !hasTime ? "" : wanted;
  useEffect(() => { if (props.measured) setHeat("time"); }, [props.measured]);
  const [masks, setMasks] = useState(true);
  const [types, setTypes] = useState(false);
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const [hover, setHover] = useState<{ box: Box; x: number; y: number } | null>(null);
  const [under, setUnder] = useState<Frame | undefined>(undefined);
  const [said, setSaid] = useState("");
  const [marquee, setMarquee] = useState<Rect | null>(null);
  const search = useRef<HTMLInputElement>(null);
  const shown = useRef<Drawing>(target);
  const anchor = useRef<{ id: string; at: Rect } | null>(null);

  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => {
      const box = holder.current!.getBoundingClientRect();
      setSize([Math.max(50, box.width), Math.max(50, box.height)]);
    });
    watch.observe(holder.current!);
    return () => watch.disconnect();
  }, []);

  const fitted = useCallback((drawing: Drawing, within: Point): Camera => {
    const k = Math.min(within[0] / drawing.width, (within[1] - 30) / drawing.height, 1.6) * 0.97;
    return { k, x: (within[0] - drawing.width * k) / 2, y: (within[1] - 30 - drawing.height * k) / 2 };
  }, []);
  const view = camera ?? fitted(target, size);

  // Move from the drawing that was shown to the next one, and keep what was clicked in its place.
  useLayoutEffect(() => {
    const from = shown.current;
    if (from === target) return;
    shown.current = target;
    let goal = camera;
    const fixed = anchor.current;
    anchor.current = null;
    if (fixed && camera) {
      const there = target.boxes.find((box) => box.id === fixed.id)?.at
        ?? target.frames.find((frame) => `node/${frame.node}` === fixed.id)?.at ?? origin(`${fixed.id}.`, target);
      if (there) {
        const dx = fixed.at[0] + fixed.at[2] / 2 - (there[0] + there[2] / 2), dy = fixed.at[1] + fixed.at[3] / 2 - (there[1] + there[3] / 2);
        goal = { k: camera.k, x: camera.x + dx * camera.k, y: camera.y + dy * camera.k };
      }
    }
    const start = camera ?? fitted(from, size), end = goal ?? fitted(target, size);
    if (!canMove(from, target)) {
      setStep(null);
      if (camera) setCamera(end);
      return;
    }
    const began = performance.now();
    let frame = 0;
    const tick = (now: number) => {
      const t = Math.min(1, (now - began) / DURATION);
      const e = t < 0.5 ? 4 * t ** 3 : 1 - (-2 * t + 2) ** 3 / 2;
      setCamera(t < 1 || camera ? { k: start.k + (end.k - start.k) * e, x: start.x + (end.x - start.x) * e, y: start.y + (end.y - start.y) * e } : null);
      setStep(t < 1 ? between(from, target, t) : null);
      if (t < 1) frame = requestAnimationFrame(tick);
    };
    tick(began);
    frame = requestAnimationFrame(tick);
    return () => cancelAnimationFrame(frame);
  }, [target]);

  const { closed, opened } = readKey(stateKey);
  const foldable = useCallback((node: string): string => {
    const generic = scene.foldable[node] ? node : node.replace(/\.\d[\d,\-.]*(?=\.)/g, ".*");
    const one = scene.foldable[generic];
    if (!one) return "";
    const state = readKey(stateKey);
    const isClosed = state.closed.has(node) || (!one.open && !state.opened.has(node));
    const can = (kind: string) => known === null || known.has(next(stateKey, node, kind, one.open)) || known.has(next("", node, kind, one.open));
    if (isClosed) return can("unfold") ? "o" : "";
    return [can("close") ? "-" : "", one.repeat && one.repeat > 1 ? (state.opened.has(node) ? (can("once") ? "1" : "") : can("open") ? "+" : "") : ""].join("");
  }, [scene, stateKey, known]);
  const fold = useCallback((node: string, kind: string) => {
    const first = scene.foldable[node]?.open ?? true;
    let key = next(stateKey, node, kind, first);
    if (known && !known.has(key)) key = next("", node, kind, first);
    if (known && !known.has(key)) return;
    const drawing = shown.current;
    const box = drawing.boxes.find((one) => one.id === `node/${node}`)?.at ?? drawing.frames.find((one) => one.node === node)?.at;
    if (box) anchor.current = { id: `node/${node}`, at: box };
    if (!camera) anchor.current = null;
    setHover(null);
    onKey(key);
    setSaid(`${node}: ${{ close: "folded", unfold: "unfolded", open: "every copy drawn", once: "copies drawn once" }[kind]}`);
  }, [scene, stateKey, known, camera, onKey]);
  const every = useCallback((kind: "close" | "once") => {
    const tops = Object.keys(scene.foldable).filter((path) => !/[./]/.test(path) && scene.foldable[path].open);
    const key = kind === "close" ? keyOf(tops, []) : "";
    if (!known || known.has(key)) { anchor.current = null; setCamera(null); onKey(key); }
  }, [scene, known, onKey]);

  const found = useMemo(() => {
    const words = query.trim().toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return null;
    return target.boxes.filter((box) => {
      const fact = box.fact ? scene.facts[box.fact] : undefined;
      const inner = box.fact ? Object.keys(scene.facts).filter((path) => path.startsWith(`${box.fact}/`) || path.startsWith(`${box.fact}.`)).map((path) => `${path} ${scene.facts[path].use} ${scene.facts[path].title}`) : [];
      const text = [box.id, ...box.title, ...(box.lines ?? []), fact?.use, ...inner].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    }).filter((box) => box.shape !== "join");
  }, [query, target, scene]);
  const foundIds = useMemo(() => (found ? new Set(found.map((box) => box.id)) : null), [found]);

  const drawing = step?.drawing ?? target;
  const values = useMemo(() => (heat ? target.boxes.map((box) => valueOf(scene.facts[box.fact ?? ""], heat)) : [0]), [heat, target, scene]);
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  const picked = useMemo(() => new Set(target.boxes.filter((box) => props.picked?.includes(box.id)).map((box) => box.id)), [target, props.picked]);
  const marks: Marks = { chosen, picked, found: foundIds, wrong: props.wrong ?? new Map(), masks, heat, most, types };
  const pointOf = (event: PointerEvent): Point => {
    const frame = holder.current!.getBoundingClientRect();
    return [(event.clientX - frame.left - view.x) / view.k, (event.clientY - frame.top - view.y) / view.k];
  };
  const wires = useWiring(props.wiring, target, view.k, pointOf, setSaid);
  if (wires.lit) marks.found = wires.lit;
  const outlets = useMemo(() => {
    if (!props.wiring || step) return [];
    const boxes = [hover?.box, target.boxes.find((box) => box.id === chosen)].filter((box, i, some) => box && some.indexOf(box) === i);
    return [...boxes.flatMap((box) => outletsOf(scene, box, undefined)), ...(hover || !under ? [] : outletsOf(scene, undefined, under))];
  }, [props.wiring, step, hover?.box, under, chosen, target, scene]);
  const coarse = (value: number, grid: number) => Math.floor(value / grid) * grid;
  const sight: Rect = useMemo(() => {
    const grid = 400 / view.k;
    const left = coarse(-view.x / view.k, grid) - grid, top = coarse(-view.y / view.k, grid) - grid;
    return [left, top, coarse(size[0] / view.k, grid) + 3 * grid, coarse(size[1] / view.k, grid) + 3 * grid];
  }, [Math.floor(-view.x / 400), Math.floor(-view.y / 400), view.k, size[0], size[1]]);
  const looks: Looks = { drawing, facts: scene.facts, colors, marks, sight, scale: view.k, foldable, onFold: fold, fade: step?.fade, wireFade: step?.wires };
  const picture = useMemo(() => <Drawn {...looks} />, [drawing, colors, sight, view.k < 0.28, foldable, fold, step, heat, most, masks, types, chosen, picked, foundIds, wires.lit, props.wrong, scene]);

  const zoom = (factor: number, x = size[0] / 2, y = size[1] / 2) => {
    const k = Math.max(0.02, Math.min(6, view.k * factor));
    setCamera({ k, x: x - ((x - view.x) * k) / view.k, y: y - ((y - view.y) * k) / view.k });
  };
  const bring = (box: Box) => {
    const [x, y, w, h] = box.at;
    const k = Math.max(view.k, 0.7);
    setCamera({ k, x: size[0] / 2 - (x + w / 2) * k, y: size[1] / 2 - (y + h / 2) * k });
  };
  const choose = (box: Box | undefined, move = false) => {
    props.onPick?.([]);
    onChoose(box?.id ?? "");
    if (!box) return;
    setSaid(`${box.title.join(" ")}${box.fact ? `, ${box.fact}, ${short(scene.facts[box.fact].parameters)} parameters` : ""}`);
    const [x, y, w, h] = box.at;
    const inside = x * view.k + view.x >= 0 && y * view.k + view.y >= 0 && (x + w) * view.k + view.x <= size[0] && (y + h) * view.k + view.y <= size[1];
    if (move && !inside) bring(box);
  };

  useEffect(() => {
    const element = holder.current!;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const box = element.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.clientX - box.left, event.clientY - box.top);
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  });

  const pick = (ids: string[]) => {
    props.onPick?.(ids.length > 1 ? ids : []);
    if (!ids.includes(chosen) || ids.length < 2) onChoose(ids.at(-1) ?? "");
    setSaid(ids.length > 1 ? `${ids.length} nodes selected` : "");
  };
  const more = (box: Box | undefined) => { if (box && props.onPick) pick(toggled([...picked], chosen, box)); else choose(box); };

  const drag = useRef<{ x: number; y: number; from: Camera; moved: boolean; corner: Point | null } | null>(null);
  const boxAt = (event: Event): Box | undefined => {
    const id = (event.target as Element).closest?.("[data-id]")?.getAttribute("data-id");
    return id ? target.boxes.find((box) => box.id === id) : undefined;
  };
  const step_ = (way: "up" | "down" | "left" | "right", extend = false) => {
    const now = target.boxes.find((box) => box.id === chosen);
    const after = now && neighbor(target, now, way);
    if (extend && props.onPick && after) { const ids = [...new Set([...toggled([...picked].filter((id) => id !== after.id), chosen, after)])]; props.onPick(ids); onChoose(after.id); setSaid(`${ids.length} nodes selected`); return; }
    if (!now) return choose(target.boxes.find((box) => box.shape === "box") ?? target.boxes[0], true);
    choose(after ?? now, true);
  };
  const keys = (event: KeyboardEvent) => {
    if (wires.key(event.key, event.shiftKey)) { event.preventDefault(); return; }
    const box = target.boxes.find((one) => one.id === chosen);
    const node = box?.id.replace(/^node\//, "") ?? "";
    const around = box ? target.frames.filter((one) => node.startsWith(`${one.path}.`)).pop()?.node : undefined;
    const acts: Record<string, () => void> = {
      ArrowUp: () => step_("up", event.shiftKey), ArrowDown: () => step_("down", event.shiftKey), ArrowLeft: () => step_("left", event.shiftKey), ArrowRight: () => step_("right", event.shiftKey),
      s: () => { const groups = box ? alike(scene, target, box) : []; const wider = groups.find((one) => one.ids.length > picked.size) ?? groups[0]; if (wider && props.onPick) pick(wider.ids); },
      F2: () => { const name = holder.current!.parentElement!.querySelector<HTMLInputElement>(".inspector [data-act=name]"); name?.focus(); name?.select(); },
      "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), "0": () => setCamera(null),
      "/": () => search.current?.focus(), m: () => setMasks(!masks), t: () => setTypes(!types), d: () => props.onDark(!dark),
      h: () => setHeat(HEATS[(HEATS.findIndex(([name]) => name === heat) + 1) % (hasTime ? 5 : 4)][0]),
      f: () => every(closed.size ? "once" : "close"),
      Enter: () => { if (foldable(node).includes("o")) fold(node, "unfold"); else if (box && props.onMenu) props.onMenu(box); },
      " ": () => { if (foldable(node).includes("o")) fold(node, "unfold"); else if (around) fold(around, opened.has(around) ? "once" : "close"); },
      w: () => { const [first] = outletsOf(scene, box, undefined); if (first) wires.begin(first, true); else setSaid("no value to draw a wire from"); },
      Escape: () => { setQuery(""); props.onPick?.([]); onChoose(""); setHover(null); },
    };
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : acts[event.key];
    if (act) { event.preventDefault(); act(); }
  };
  const export_ = async (kind: "svg" | "png" | "pdf") => {
    const seen: Rect = camera ? [-view.x / view.k, -view.y / view.k, size[0] / view.k, size[1] / view.k] : [0, 0, target.width, target.height];
    const text = svgOf({ ...looks, drawing: target, fade: undefined, wireFade: 1 }, seen);
    const blob = kind === "pdf" ? await pdfOf(text, scene.name) : kind === "svg" ? new Blob([text], { type: "image/svg+xml" }) : await pngOf(text, seen[2], seen[3]);
    save(`${scene.name.replace(/[^\w.-]+/g, "-")}.${kind}`, blob);
  };
  const chosenBox = target.boxes.find((box) => box.id === chosen);

  return (
    <div class="viewer">
      <div class="bar" role="toolbar" aria-label="drawing">
        <input ref={search} type="search" placeholder="Search ( / )" aria-label="search nodes" value={query}
          onInput={(event) => { setQuery(event.currentTarget.value); setAt(0); }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && found?.length) { const box = found[at % found.length]; setAt(at + 1); choose(box); bring(box); }
            if (event.key === "Escape") { setQuery(""); holder.current?.focus(); }
          }} />
        {found && <span class="count" role="status">{found.length ? `${Math.min(at || 1, found.length)} of ${found.length}` : "nothing"}</span>}
        <select aria-label="heat" value={heat} onChange={(event) => setHeat(event.currentTarget.value as Heat)}>
          {HEATS.filter(([name]) => name !== "time" || hasTime).map(([name, text]) => <option key={name} value={name}>{text}</option>)}
        </select>
        {props.onMeasure && <button onClick={props.onMeasure} disabled={props.measuring} title="measure the time of a forward pass at these sizes">{props.measuring ? "measuring…" : "measure"}</button>}
        <button aria-pressed={masks} onClick={() => setMasks(!masks)} title="masks (m)">masks</button>
        <button aria-pressed={types} onClick={() => setTypes(!types)} title="types of wires (t)">types</button>
        <span class="group">
          <button onClick={() => every("close")} title="fold everything (f)">fold</button>
          <button onClick={() => every("once")} title="unfold everything (f)">unfold</button>
        </span>
        <span class="group">
          <button onClick={() => zoom(0.8)} aria-label="zoom out">−</button>
          <button onClick={() => setCamera(null)} title="fit (0)">fit</button>
          <button onClick={() => zoom(1.25)} aria-label="zoom in">+</button>
        </span>
        <span class="group">
          <button onClick={() => void export_("svg")} title="save what is seen as SVG">SVG</button>
          <button onClick={() => void export_("png")} title="save what is seen as PNG">PNG</button>
          <button onClick={() => void export_("pdf")} title="save what is seen as PDF">PDF</button>
        </span>
        <button aria-pressed={dark} onClick={() => props.onDark(!dark)} aria-label="dark mode" title="dark mode (d)">◐</button>
        {props.tools}
      </div>
      <div class={`canvas${props.stale ? " stale" : ""}`} ref={holder} tabIndex={0} role="application" onKeyDown={keys}
        aria-label={`drawing of ${scene.name}; arrow keys go along the wires, Enter unfolds, / searches`}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          drag.current = { x: event.clientX, y: event.clientY, from: view, moved: false, corner: event.shiftKey && props.onPick ? pointOf(event) : null };
        }}
        onPointerMove={(event) => {
          const held = drag.current;
          if (held) {
            const dx = event.clientX - held.x, dy = event.clientY - held.y;
            if (!held.moved && Math.hypot(dx, dy) > 4) { held.moved = true; holder.current!.setPointerCapture(event.pointerId); }
            if (held.moved && held.corner) { setHover(null); setMarquee(spanned(held.corner, pointOf(event))); } else if (held.moved) { setHover(null); setCamera({ ...held.from, x: held.from.x + dx, y: held.from.y + dy }); }
            return;
          }
          if (wires.thread) return;
          const box = boxAt(event), frame = holder.current!.getBoundingClientRect();
          const at = pointOf(event), edge = 10 / view.k;
          // The outlets of a box and of a frame stand on their upper edge, half of them outside.
          setUnder(target.frames.filter(({ at: [x, y, w, h] }) => at[0] >= x && at[0] <= x + w && at[1] >= y - edge && at[1] <= y + h + edge).pop());
          if ((event.target as Element).closest?.(".outlet")) return;
          setHover(box ? { box, x: event.clientX - frame.left, y: event.clientY - frame.top } : null);
        }}
        onPointerUp={(event) => {
          const held = drag.current;
          drag.current = null;
          setMarquee(null);
          if (held?.corner && held.moved) pick(within(target, spanned(held.corner, pointOf(event)), [...picked]));
          else if (held && !held.moved) (held.corner ? more : choose)(boxAt(event));
        }}
        onPointerLeave={() => { setHover(null); setUnder(undefined); }}
        onDblClick={(event) => { const box = boxAt(event); if (box && props.onMenu) props.onMenu(box); }}>
        <svg width={size[0]} height={size[1]} aria-hidden={false} role="group" aria-label={scene.name}>
          <g transform={`translate(${view.x},${view.y}) scale(${view.k})`}>
            {picture}
            {marquee && <Marquee at={marquee} colors={colors} scale={view.k} />}
            {!wires.thread && <Outlets outlets={outlets} colors={colors} scale={view.k} begin={(outlet) => { setHover(null); wires.begin(outlet, false); }} />}
            {wires.thread && <Thread thread={wires.thread} inlets={wires.inlets} colors={colors} scale={view.k} />}
          </g>
        </svg>
        {hover && !drag.current && !wires.thread && hover.box.id !== chosen && (
          <div class="hover" role="tooltip" style={{ left: `${hover.x + 330 > size[0] ? Math.max(4, hover.x - 330) : hover.x + 16}px`, top: `${Math.max(4, Math.min(hover.y + 12, size[1] - 320))}px` }}>
            <Card box={hover.box} scene={scene} />
          </div>
        )}
        {heat && (
          <div class="legend" aria-label={`heat: ${heat}`}>
            <span>0</span><span class="ramp">{[0, 0.1, 0.25, 0.45, 0.7, 1].map((t) => <i key={t} style={{ background: heatColor(colors, t) }} />)}</span>
            <span>{heat === "time" ? `${(most * 1e3).toFixed(2)} ms` : short(most, UNITS[heat])}</span>
          </div>
        )}
        <div class="head">
          <b>{scene.name}</b> {short(scene.parameters)} parameters · {short(scene.flops)} FLOPs at {Object.entries(scene.sizes).map(([axis, length]) => `${axis}=${length}`).join(" ")}
        </div>
      </div>
      {picked.size > 1 && props.several && (
        <aside class="inspector" aria-label="selected nodes">
          <button class="close" aria-label="close" onClick={() => choose(undefined)}>×</button>
          {props.several(target.boxes.filter((box) => picked.has(box.id)))}
        </aside>
      )}
      {chosenBox && !(picked.size > 1 && props.several) && (
        <aside class="inspector" aria-label="selected node">
          <button class="close" aria-label="close" onClick={() => onChoose("")}>×</button>
          {props.onPick && <p class="alike">{alike(scene, target, chosenBox).map((one) => <button key={one.title} onClick={() => pick(one.ids)} title="select all of them (s)">All {one.ids.length} {one.title}</button>)}</p>}
          <Card box={chosenBox} scene={scene} pinned>{(props.inspector?.(chosenBox) ?? null) as never}</Card>
        </aside>
      )}
      <div class="said" aria-live="polite">{said}</div>
    </div>
  );
}

/** The state after one change. */
export function next(key: string, node: string, kind: string, first: boolean): string {
  const { closed, opened } = readKey(key);
  closed.delete(node);
  opened.delete(node);
  if (kind === "close" && first) closed.add(node);
  if (kind === "open" || (kind === "unfold" && !first)) opened.add(node);
  if (kind === "close") for (const some of [closed, opened]) for (const path of some) if (path.startsWith(`${node}.`)) some.delete(path);
  return keyOf(closed, opened);
}
