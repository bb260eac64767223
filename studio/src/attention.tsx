// Attention weights of a sentence: the heads of a layer side by side, and one of them large.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, type Heads } from "./api";
import { said } from "./dialogs";
import type { Box, Scene } from "./types";

const SHADES: Record<string, [number[], number[]]> = { light: [[255, 255, 255], [31, 95, 168]], dark: [[21, 24, 28], [120, 190, 255]] };
const colorOf = (share: number, dark: boolean): number[] => {
  const [low, high] = SHADES[dark ? "dark" : "light"];
  return low.map((value, i) => Math.round(value + (high[i] - value) * Math.max(0, Math.min(1, share))));
};
const largest = (map: number[][]): number => map.reduce((most, row) => row.reduce((a, b) => Math.max(a, b), most), 0);
const shownAs = (piece: string): string => piece.replace(/▁/g, "·");

/** A map as a picture with one pixel for each weight. */
function paint(canvas: HTMLCanvasElement, map: number[][], most: number, dark: boolean): void {
  canvas.width = map[0].length;
  canvas.height = map.length;
  const context = canvas.getContext("2d")!, image = context.createImageData(canvas.width, canvas.height);
  map.flat().forEach((weight, i) => image.data.set([...colorOf(weight / most, dark), 255], 4 * i));
  context.putImageData(image, 0, 0);
}

export function Attention({ scene, box, dark }: { scene: Scene; box: Box | undefined; dark: boolean }) {
  const [sentence, setSentence] = useState("");
  const [target, setTarget] = useState("");
  const [asked, setAsked] = useState<{ sentence: string; target: string | null }>({ sentence: "", target: null });
  const [nodes, setNodes] = useState<string[]>([]);
  const [place, setPlace] = useState({ node: "", layer: "" });
  const [found, setFound] = useState<Heads | null>(null);
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const [head, setHead] = useState(0);
  const [stretch, setStretch] = useState(false);
  const turn = useRef(0);
  useEffect(() => {
    const mine = ++turn.current;
    setBusy(true);
    api.attention({ ...asked, ...place }).then((made) => {
      if (mine !== turn.current) return;
      setFound(made);
      setWrong("");
      setBusy(false);
      if (!place.node) setNodes([...new Set(made.layers.map((one) => one.node))]);
      if (!asked.sentence) setSentence(made.source);
    }, (error) => { if (mine === turn.current) { setWrong(said(error)); setBusy(false); } });
  }, [asked, place]);
  // The attention of the node that is selected in the drawing.
  const fact = box?.fact ?? "";
  const isAttention = nodes.some((node) => node === fact || node.startsWith(`${fact}/`));
  useEffect(() => { if (fact && isAttention) setPlace({ node: fact, layer: box!.id.replace(/^\w+\//, "") }); }, [box?.id, isAttention]);
  const maps = useMemo(() => {
    if (!found) return [];
    const mean = found.heads[0].map((row, y) => row.map((_, x) => found.heads.reduce((sum, one) => sum + one[y][x], 0) / found.heads.length));
    return [...found.heads.map((map, i) => ({ name: `head ${i}`, map })), { name: "mean", map: mean }];
  }, [found]);
  const chosen = maps[Math.min(head, maps.length - 1)];
  const most = stretch && chosen ? largest(chosen.map) || 1 : 1;
  const short = (path: string) => path.replace(/(\.|\/)f$/, "");
  return (
    <div class="attention" aria-busy={busy}>
      <form class="row" onSubmit={(event) => { event.preventDefault(); setAsked({ sentence, target: target.trim() ? target : null }); }}>
        <input type="text" aria-label="sentence" placeholder="a sentence" value={sentence} onInput={(event) => setSentence(event.currentTarget.value)} />
        <input type="text" aria-label="input of the decoder" placeholder={found && !target ? found.target : "the model's translation"} title="input of the decoder; empty for the model's own translation" value={target} onInput={(event) => setTarget(event.currentTarget.value)} />
        <button class="main" disabled={busy}>Show</button>
        {busy && <span class="note" role="status">computing…</span>}
      </form>
      {wrong && <p class="wrong" role="alert">{wrong}</p>}
      {found && (
        <>
          <div class="row layers">
            <select aria-label="attention" value={place.node} onChange={(event) => setPlace({ node: event.currentTarget.value, layer: "" })}>
              <option value="">every attention</option>
              {nodes.map((node) => <option key={node} value={short(node)}>{short(node)}</option>)}
            </select>
            <span class="group" role="group" aria-label="layers">
              {found.layers.map((one, i) => (
                <button key={one.path} aria-pressed={i === found.shown} title={short(one.path)} onClick={() => setPlace({ ...place, layer: one.path.split(" ")[0] })}>
                  {place.node ? (/\.(\d+)\./.exec(one.path)?.[1] ?? i) : i}
                </button>
              ))}
            </span>
            <span><b>{short(found.layers[found.shown].path)}</b>: {found.title}</span>
            {!place.node && scene && <span class="note">click an attention in the drawing to see its layers</span>}
          </div>
          <div class="maps">
            <div class="side">
              <div class="heads">
                {maps.map((one, i) => (
                  <button key={one.name} class="map" aria-pressed={one === chosen} onClick={() => setHead(i)}>
                    <Small map={one.map} most={stretch ? largest(one.map) || 1 : 1} dark={dark} />{one.name}
                  </button>
                ))}
              </div>
              <div class="scale" aria-label="color scale">
                <span>0</span><span class="ramp">{[0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1].map((t) => <i key={t} style={{ background: `rgb(${colorOf(t, dark)})` }} />)}</span><span>{most.toFixed(2)}</span>
                <label><input type="checkbox" checked={stretch} onChange={(event) => setStretch(event.currentTarget.checked)} /> largest weight in full color</label>
              </div>
            </div>
            {chosen && <Large found={found} name={chosen.name} map={chosen.map} most={most} dark={dark} />}
          </div>
        </>
      )}
    </div>
  );
}

function Small({ map, most, dark }: { map: number[][]; most: number; dark: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => paint(canvas.current!, map, most, dark), [map, most, dark]);
  const unit = Math.min(12, 84 / Math.max(map.length, map[0].length));
  return <canvas ref={canvas} style={{ width: `${unit * map[0].length}px`, height: `${unit * map.length}px` }} />;
}

function Large({ found, name, map, most, dark }: { found: Heads; name: string; map: number[][]; most: number; dark: boolean }) {
  const [cell, setCell] = useState<[row: number, column: number] | null>(null);
  useEffect(() => setCell(null), [found]);
  const url = useMemo(() => {
    const canvas = document.createElement("canvas");
    paint(canvas, map, most, dark);
    return canvas.toDataURL();
  }, [map, most, dark]);
  const { reads, read } = found;
  const size = Math.max(3, Math.min(15, 420 / Math.max(reads.length, read.length)));
  const labels = size >= 7;
  const long = (pieces: string[]) => Math.max(...pieces.map((piece) => piece.length));
  const left = labels ? Math.min(110, 8 + 6.6 * long(reads)) : 8, top = labels ? Math.min(90, 8 + 6.6 * long(read)) : 8;
  const [wide, high] = [left + size * read.length + 2, top + size * reads.length + 2];
  const move = (row: number, column: number) => setCell([Math.max(0, Math.min(reads.length - 1, row)), Math.max(0, Math.min(read.length - 1, column))]);
  const [row, column] = cell ?? [-1, -1];
  const cut = (piece: string) => (piece.length > 15 ? `${shownAs(piece).slice(0, 14)}…` : shownAs(piece));
  return (
    <div class="large">
      <p aria-live="polite">{cell ? <><b>{shownAs(reads[row])}</b> reads <b>{shownAs(read[column])}</b>: {map[row][column].toFixed(3)}</> : `${name}: point at a weight`}</p>
      <svg width={wide} height={high} tabindex={0} role="application" aria-label={`weights of ${name}; arrow keys go from one to the next`}
        onPointerMove={(event) => {
          const at = event.currentTarget.getBoundingClientRect();
          const [r, c] = [Math.floor((event.clientY - at.top - top) / size), Math.floor((event.clientX - at.left - left) / size)];
          if (r >= 0 && c >= 0 && r < reads.length && c < read.length) setCell([r, c]);
        }}
        onKeyDown={(event) => {
          const step = ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] } as Record<string, [number, number]>)[event.key];
          if (step) { event.preventDefault(); move(Math.max(0, row) + (cell ? step[0] : 0), Math.max(0, column) + (cell ? step[1] : 0)); }
        }}>
        {labels && reads.map((piece, i) => <text key={i} class={i === row ? "on" : ""} x={left - 5} y={top + size * (i + 0.5) + 3.5} text-anchor="end" font-size={Math.min(11, size * 0.95)}>{cut(piece)}</text>)}
        {labels && read.map((piece, i) => <text key={i} class={i === column ? "on" : ""} transform={`translate(${left + size * (i + 0.5) + 3.5},${top - 5}) rotate(-90)`} font-size={Math.min(11, size * 0.95)}>{cut(piece)}</text>)}
        <image href={url} x={left} y={top} width={size * read.length} height={size * reads.length} preserveAspectRatio="none" style={{ imageRendering: "pixelated" }} />
        <rect class="edge" x={left} y={top} width={size * read.length} height={size * reads.length} />
        {cell && <rect class="cell" x={left + size * column} y={top + size * row} width={size} height={size} />}
      </svg>
    </div>
  );
}
