// One drawing as SVG. All colors are attributes, so that an exported file needs no style sheet.
import type { JSX } from "preact";
import { heatColor, type Palette } from "./palette";
import type { Box, Drawing, Fact, Frame, Heat, Rect, Wire } from "./types";

export const FONT = "Helvetica, Arial, sans-serif";
/** Scale below which texts are too small to read, and are left out. */
const LEGIBLE = 0.28;
/** Number of boxes in sight from which on they are drawn together. */
const MANY = 1500;

export interface Marks {
  chosen: string;
  picked?: Set<string>;
  found: Set<string> | null;
  wrong: Map<string, string>;
  masks: boolean;
  heat: Heat;
  most: number;
  types: boolean;
}

export interface Looks {
  drawing: Drawing;
  facts: Record<string, Fact>;
  colors: Palette;
  marks: Marks;
  /** The part that is in sight; everything if null, as in an exported file. */
  sight: Rect | null;
  scale: number;
  foldable: (node: string) => string;
  onFold?: (node: string, kind: string) => void;
  fade?: Map<string, number>;
  wireFade?: number;
}

export const valueOf = (fact: Fact | undefined, heat: Heat): number =>
  (heat && fact && (fact[heat] as number)) || 0;

export function Drawn(props: Looks): JSX.Element {
  const { drawing, colors, marks, sight, scale } = props;
  const boxes = sight ? drawing.boxes.filter((box) => meets(box.at, sight)) : drawing.boxes;
  const ids = new Set(boxes.map((box) => box.id));
  const wires = drawing.wires.filter(
    (wire) => (marks.masks || !wire.mask) && (!sight || ids.has(wire.from) || ids.has(wire.to)),
  );
  if (boxes.length > MANY && sight) return <Coarse {...props} boxes={boxes} wires={wires} />;
  const legible = scale >= LEGIBLE || !sight;
  return (
    <g font-family={FONT} fill={colors.ink}>
      <g>{drawing.frames.map((frame) => <OneFrame key={frame.path} frame={frame} legible={legible} {...props} />)}</g>
      <g fill="none" opacity={props.wireFade ?? 1}>
        {wires.map((wire) => <OneWire key={`${wire.from} ${wire.to} ${wire.mask}`} wire={wire} {...props} />)}
      </g>
      <g>{boxes.map((box) => <OneBox key={box.id} box={box} legible={legible} {...props} />)}</g>
      {marks.types && legible && <g>{wires.map((wire) => <TypeLabel key={`${wire.from} ${wire.to} ${wire.mask}`} wire={wire} colors={colors} />)}</g>}
    </g>
  );
}

const meets = (at: Rect, sight: Rect): boolean =>
  at[0] < sight[0] + sight[2] && at[0] + at[2] > sight[0] && at[1] < sight[1] + sight[3] && at[1] + at[3] > sight[1];

/** Thousands of boxes: one path for each color. */
function Coarse({ boxes, wires, drawing, colors, marks, facts }: Looks & { boxes: Box[]; wires: Wire[] }) {
  const areas = new Map<string, string>();
  for (const box of boxes) {
    const color = fillOf(box, facts, colors, marks);
    const [x, y, w, h] = box.at;
    areas.set(color, `${areas.get(color) ?? ""}M${x} ${y}h${w}v${h}h${-w}z`);
  }
  return (
    <g>
      {drawing.frames.length < 400 && drawing.frames.map((frame) => (
        <rect key={frame.path} x={frame.at[0]} y={frame.at[1]} width={frame.at[2]} height={frame.at[3]}
          fill={colors.frame} stroke={colors.frameEdge} />
      ))}
      <path d={wires.map((wire) => wire.d).join("")} fill="none" stroke={colors.faint} stroke-width={1} />
      {[...areas].map(([color, d]) => <path key={color} d={d} fill={color} stroke={colors.edge} stroke-width={0.5} />)}
    </g>
  );
}

function OneFrame({ frame, colors, legible, foldable, onFold }: Looks & { frame: Frame; legible: boolean }) {
  const [x, y, w, h] = frame.at;
  const lines = [...(frame.copies === null ? [] : [`× ${frame.copies}`]), ...frame.lines];
  // Copies that are drawn one by one have the buttons of their repeat.
  const kinds = onFold && !/\.\d+$/.test(frame.path) ? foldable(frame.node) : "";
  let down = y + 4;
  const texts = lines.map((line) => {
    const large = line.startsWith("× ");
    down += large ? 16 : 12.5;
    return <text key={line} x={x + 9} y={down} font-size={large ? 14 : 10.5} fill={large ? colors.ink : colors.dim}>{line}</text>;
  });
  return (
    <g>
      <rect x={x} y={y} width={w} height={h} rx={9} fill={colors.frame} stroke={colors.frameEdge} stroke-width={1.2} />
      {legible && texts}
      {kinds && legible && (
        <g class="tools">
          {kinds.includes("-") && <FoldButton x={x + w - 20} y={y + 4} sign="−" label={`fold ${frame.node}`} colors={colors} act={() => onFold!(frame.node, "close")} />}
          {kinds.includes("+") && <FoldButton x={x + w - 40} y={y + 4} sign="≡" label={`draw every copy of ${frame.node}`} colors={colors} act={() => onFold!(frame.node, "open")} />}
          {kinds.includes("1") && <FoldButton x={x + w - 40} y={y + 4} sign="1" label={`draw the copies of ${frame.node} once`} colors={colors} act={() => onFold!(frame.node, "once")} />}
        </g>
      )}
    </g>
  );
}

export function FoldButton({ x, y, sign, label, colors, act }: { x: number; y: number; sign: string; label: string; colors: Palette; act: () => void }) {
  return (
    <g role="button" aria-label={label} class="fold" data-fold={label} onClick={(event) => { event.stopPropagation(); act(); }} onPointerDown={(event) => event.stopPropagation()}>
      <title>{label}</title>
      <rect x={x} y={y} width={16} height={16} rx={4} fill={colors.white} stroke={colors.frameEdge} />
      <text x={x + 8} y={y + 12} font-size={12} text-anchor="middle" fill={colors.dim}>{sign}</text>
    </g>
  );
}

function OneWire({ wire, colors, marks }: Looks & { wire: Wire }) {
  const touched = marks.chosen !== "" && (wire.from === marks.chosen || wire.to === marks.chosen);
  const color = touched ? colors.chosen : wire.mask ? colors.faint : colors.ink;
  return (
    <g stroke={color}>
      <path d={wire.d} stroke-width={touched ? 2 : wire.mask ? 0.7 : 1.1} stroke-dasharray={wire.mask ? "4 3" : undefined} />
      {wire.end && <path d={arrow(wire)} fill={color} stroke-width={wire.mask ? 0.7 : 1} stroke-linejoin="round" />}
    </g>
  );
}

function arrow(wire: Wire): string {
  const [ex, ey] = wire.end!;
  const [lx, ly] = wire.d.slice(wire.d.lastIndexOf(" ") + 1).split(",").map(Number);
  const dx = ex - lx, dy = ey - ly, length = Math.hypot(dx, dy) || 1;
  const half = wire.mask ? 1.9 : 2.4;
  const nx = (-dy / length) * half, ny = (dx / length) * half;
  return `M${lx + nx} ${ly + ny}L${ex} ${ey}L${lx - nx} ${ly - ny}Z`;
}

function TypeLabel({ wire, colors }: { wire: Wire; colors: Palette }) {
  const points = wire.d.slice(1).split(/[C ]/).map((word) => word.split(",").map(Number));
  const [x, y] = points[Math.floor(points.length / 2)];
  return (
    <text x={x + 5} y={y} font-size={9} font-family={FONT} fill={colors.faint} paint-order="stroke" stroke={colors.ground} stroke-width={3}>
      {wire.types.join(", ")}
    </text>
  );
}

function fillOf(box: Box, facts: Record<string, Fact>, colors: Palette, marks: Marks): string {
  if (marks.heat) return box.fact ? heatColor(colors, valueOf(facts[box.fact], marks.heat) / (marks.most || 1)) : colors.white;
  return box.shape === "box" ? colors.families[box.family] ?? colors.families.other : colors.white;
}

function OneBox(props: Looks & { box: Box; legible: boolean }) {
  const { box, colors, marks, facts, fade, foldable, onFold } = props;
  const [x, y, w, h] = box.at;
  const dimmed = marks.found && !marks.found.has(box.id) ? 0.25 : 1;
  const opacity = (fade?.get(box.id) ?? 1) * dimmed;
  const node = box.id.slice(box.id.indexOf("/") + 1);
  const closed = onFold && box.id.startsWith("node/") && foldable(node).includes("o");
  const wrong = marks.wrong.get(box.id);
  const ring = wrong ? colors.wrong : box.id === marks.chosen || marks.picked?.has(box.id) ? colors.chosen : marks.found?.has(box.id) ? colors.found : "";
  const change = box.fact ? facts[box.fact]?.changed : undefined;
  if (box.shape === "join") return <circle cx={x + w / 2} cy={y + h / 2} r={1.2} fill={colors.ink} opacity={opacity} />;
  return (
    <g class="box" data-id={box.id} opacity={opacity === 1 ? undefined : opacity} role="button" tabIndex={-1}
      aria-label={labelOf(box, facts)} aria-pressed={box.id === marks.chosen || Boolean(marks.picked?.has(box.id))}>
      <Body {...props} />
      {closed && props.legible && <FoldButton x={x + w - 18} y={y + 3} sign="+" label={`unfold ${node}`} colors={colors} act={() => onFold!(node, "unfold")} />}
      {(ring || change) && <rect x={x - 3} y={y - 3} width={w + 6} height={h + 6} rx={8} fill="none"
        stroke={ring || { added: "#2f9e44", removed: "#c92a2a", changed: "#e8590c" }[change!]} stroke-width={2.2} />}
    </g>
  );
}

export function labelOf(box: Box, facts: Record<string, Fact>): string {
  const fact = box.fact ? facts[box.fact] : undefined;
  if (!fact) return `${box.title.join(" ")}${box.tip ? `, ${box.tip}` : ""}`;
  const count = fact.parameters ? `, ${fact.parameters.toLocaleString("en")} parameters` : "";
  const bands = [...(box.below ?? []), ...(box.above ?? [])].map((band) => `, with ${band.join(" ")}`).join("");
  return `${box.title.join(" ")}${bands}, ${box.fact}${count}`;
}

function Body({ box, colors, marks, facts, legible }: Looks & { box: Box; legible: boolean }) {
  const [x, y, w, h] = box.at;
  const middle = x + w / 2;
  if (box.shape === "text") {
    const size = box.mask ? 11 : 13;
    return (
      <g>
        <rect x={x} y={y} width={w} height={h} fill="transparent" />
        {legible && box.title.map((line, i) => (
          <text key={i} x={middle} y={y + h / 2 + 4.5 + (i - (box.title.length - 1) / 2) * 15} font-size={size} text-anchor="middle"
            fill={box.mask ? colors.faint : colors.ink}>{line}</text>
        ))}
      </g>
    );
  }
  if (box.shape !== "box") {
    const round = box.shape === "sum" || box.shape === "wave";
    return (
      <g>
        <rect x={x} y={y} width={w} height={h} rx={round ? h / 2 : 6} fill={colors.white} stroke={colors.edge}
          stroke-dasharray={box.shape === "constant" ? "4 3" : undefined} />
        {legible && box.title.map((line, i) => (
          <text key={i} x={middle} y={y + h / 2 + 3.6 + (i - (box.title.length - 1) / 2) * 12} font-size={10.5} text-anchor="middle">{line}</text>
        ))}
      </g>
    );
  }
  const above = (box.above ?? []).slice().reverse(), below = (box.below ?? []).slice().reverse();
  const rows = [
    ...above.map((lines) => ({ lines, core: false })),
    { lines: [] as string[], core: true },
    ...below.map((lines) => ({ lines, core: false })),
  ].map((row) => ({ ...row, high: row.core ? 12 + 15.5 * box.title.length + 12.5 * (box.lines?.length ?? 0) : 6 + 13 * row.lines.length }));
  const gap = 1.5;
  const total = rows.reduce((sum, row) => sum + row.high, 0) + gap * (rows.length - 1);
  const stretch = (h - 2) / total;
  const norm = marks.heat ? colors.white : colors.families.norm;
  const edge = { stroke: box.frozen ? "#5b8db8" : colors.edge, "stroke-width": 1, "stroke-dasharray": box.frozen ? "4 3" : undefined };
  let top = y + 1;
  return (
    <g>
      {rows.map((row, i) => {
        const high = row.high * stretch, at = top;
        top += high + gap * stretch;
        return (
          <g key={i}>
            <rect x={x + 1} y={at} width={w - 2} height={high} rx={5} fill={row.core ? fillOf(box, facts, colors, marks) : norm} {...edge} />
            {legible && (row.core ? <Core box={box} middle={middle} at={at} high={high} colors={colors} heat={Boolean(marks.heat)} />
              : row.lines.map((line, n) => (
                <text key={n} x={middle} y={at + high / 2 + 3.8 + (n - (row.lines.length - 1) / 2) * 13} font-size={11} text-anchor="middle">{line}</text>
              )))}
          </g>
        );
      })}
    </g>
  );
}

function Core({ box, middle, at, high, colors }: { box: Box; middle: number; at: number; high: number; colors: Palette; heat: boolean }) {
  const small = box.lines ?? [];
  let line = at + (high - 15.5 * box.title.length - 12.5 * small.length) / 2;
  return (
    <g text-anchor="middle">
      {box.title.map((text, i) => <text key={i} x={middle} y={(line += 15.5) - 3.4} font-size={12.5}>{text}</text>)}
      {small.map((text, i) => <text key={`s${i}`} x={middle} y={(line += 12.5) - 2.8} font-size={10} fill={colors.dim}>{text}</text>)}
    </g>
  );
}
