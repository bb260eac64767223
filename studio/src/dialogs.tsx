// Dialogs of the studio: menu, palette, variant, comparison, code.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, Refusal, type Choice, type Compared, type File, type Piece } from "./api";
import { Drawn, type Looks } from "./draw";
import { palette } from "./palette";
import { short, type Drawing, type Scene } from "./types";

export function Dialog({ title, onClose, wide, children }: { title: string; onClose: () => void; wide?: boolean; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => { dialog.current!.showModal(); }, []);
  return (
    <dialog ref={dialog} class={wide ? "wide" : ""} aria-label={title} onClose={onClose} onClick={(event) => { if (event.target === dialog.current) dialog.current!.close(); }}>
      <header><h1>{title}</h1><button aria-label="close" onClick={() => dialog.current!.close()}>×</button></header>
      {children}
    </dialog>
  );
}

export const said = (error: unknown): string => error instanceof Refusal ? [error.message, error.help].filter(Boolean).join("; ") : String(error);

const signed = (count: number, unit = ""): string => (count === 0 ? "±0" : `${count > 0 ? "+" : "−"}${short(Math.abs(count), unit)}`);

export function Menu({ text, path, onPick, onClose }: { text: string; path: string; onPick: (use: string, params: Record<string, unknown>) => void; onClose: () => void }) {
  const [choices, setChoices] = useState<Choice[] | null>(null);
  const [wrong, setWrong] = useState("");
  const [query, setQuery] = useState("");
  useEffect(() => { api.menu(text, path).then((found) => setChoices(found.choices), (error) => setWrong(said(error))); }, []);
  const shown = ranked(choices ?? [], query), first = query ? shown.find((one) => one.fits) : undefined;
  const groups: [string, Choice[]][] = [["Fits", shown.filter((one) => one.fits)], ["Does not fit", shown.filter((one) => !one.fits)]];
  return (
    <Dialog title={`What fits at ${path}`} onClose={onClose}>
      <Filter query={query} onQuery={setQuery} onEnter={() => { if (first) onPick(first.use, first.proposed); }} />
      {wrong && <p class="wrong">{wrong}</p>}
      {!choices && !wrong && <p>Asking the checker…</p>}
      <div class="choices">
        {groups.map(([title, some]) => some.length > 0 && (
          <section key={title}>
            <h2>{title} <small>{some.length}</small></h2>
            {some.map((one) => <OneChoice key={one.use} one={one} first={one === first} onPick={onPick} />)}
          </section>
        ))}
      </div>
    </Dialog>
  );
}

/** A field that filters choices; Enter takes the first one. */
function Filter({ query, onQuery, onEnter }: { query: string; onQuery: (query: string) => void; onEnter: () => void }) {
  return <input type="search" autofocus placeholder="Filter; Enter takes the first" aria-label="filter blocks" value={query} onInput={(event) => onQuery(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Enter") { event.preventDefault(); onEnter(); } }} />;
}

interface Described { use: string; doc: string; family: string }

/** How well a block matches a word: its name is better than its family, and that than its text. */
function distance(one: Described, word: string): number {
  const name = one.use.split("@")[0];
  const tests = [one.use === word || name === word, name.startsWith(word), name.includes(`_${word}`), one.use.includes(word), one.family.includes(word), one.doc.toLowerCase().includes(word)];
  return tests.includes(true) ? tests.indexOf(true) : Infinity;
}

/** The blocks that match all words of a query, the best first. */
function ranked<One extends Described>(all: One[], query: string): One[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const far = new Map(all.map((one) => [one, words.reduce((sum, word) => sum + distance(one, word), 0)]));
  return all.filter((one) => far.get(one)! < Infinity).sort((a, b) => far.get(a)! - far.get(b)!);
}

function OneChoice({ one, first, onPick }: { one: Choice; first: boolean; onPick: (use: string, params: Record<string, unknown>) => void }) {
  const names = Object.keys(one.proposed);
  const [given, setGiven] = useState<Record<string, string>>(Object.fromEntries(names.map((name) => [name, typeof one.proposed[name] === "string" ? (one.proposed[name] as string) : JSON.stringify(one.proposed[name])])));
  const parsed = () => Object.fromEntries(names.map((name) => [name, valueOf(given[name])]));
  return (
    <div class={`choice${first ? " first" : ""}`}>
      <button class="pick" disabled={!one.fits} onClick={() => onPick(one.use, parsed())}>
        <b>{one.use}</b> {one.around && <>around {one.around} </>}<span>{one.doc.split(/[;.]/)[0]}</span>
      </button>
      {names.length > 0 && one.fits && names.map((name) => (
        <label key={name}>{name} <input type="text" value={given[name]} onInput={(event) => setGiven({ ...given, [name]: event.currentTarget.value })} /></label>
      ))}
      {one.fits
        ? <span class="change">{signed(one.parameters)} parameters · {signed(one.flops)} FLOPs · {Math.round(one.kept * 100)}% of weights kept</span>
        : <span class="change wrong">{one.reason}</span>}
    </div>
  );
}

/** A typed value: JSON if it is, otherwise a text. */
export function valueOf(text: string): unknown {
  try { return JSON.parse(text); } catch { return text; }
}

export function Palette({ text, path, ports, after, onPick, onClose }: { text: string; path: string; ports: string[]; after: boolean; onPick: (use: string, port: string, params: Record<string, unknown>) => void; onClose: () => void }) {
  const [port, setPort] = useState(ports[0]);
  const [pieces, setPieces] = useState<Piece[] | null>(null);
  const [wrong, setWrong] = useState("");
  const [query, setQuery] = useState("");
  const shown = ranked(pieces ?? [], query);
  useEffect(() => { setPieces(null); api.blocks(text, path, port, after).then((found) => setPieces(found.blocks), (error) => setWrong(said(error))); }, [port]);
  return (
    <Dialog title={`Put a block ${after ? "after" : "before"} ${path}`} onClose={onClose}>
      {ports.length > 1 && <label>in the wire {after ? "from" : "to"} <select value={port} onChange={(event) => setPort(event.currentTarget.value)}>{ports.map((one) => <option key={one}>{one}</option>)}</select></label>}
      <Filter query={query} onQuery={setQuery} onEnter={() => { if (query && shown[0]) onPick(shown[0].use, port, shown[0].proposed); }} />
      {wrong && <p class="wrong">{wrong}</p>}
      {!pieces && !wrong && <p>Asking the checker…</p>}
      {pieces && !shown.length && <p>No block fits.</p>}
      <div class="choices">
        {shown.map((one, index) => (
          <div class={`choice${query && !index ? " first" : ""}`} key={one.use}>
            <button class="pick" onClick={() => onPick(one.use, port, one.proposed)}><b>{one.use}</b> <span>{one.doc.split(/[;.]/)[0]}</span></button>
            <span class="change">{signed(one.parameters)} parameters{Object.keys(one.proposed).length ? ` · ${Object.entries(one.proposed).map(([name, value]) => `${name} ${value}`).join(", ")}` : ""}</span>
          </div>
        ))}
      </div>
    </Dialog>
  );
}

export function SaveAs({ text, file, valid, onClose, onSaved }: { text: string; file: File; valid: boolean; onClose: () => void; onSaved: (file: File) => void }) {
  const extending = valid && !file.checkpoint;
  const [name, setName] = useState(`${file.name}-${extending ? "variant" : "copy"}`);
  const [complete, setComplete] = useState(!extending);
  const [made, setMade] = useState<{ text: string } | null>(null);
  const [wrong, setWrong] = useState("");
  useEffect(() => {
    let asked = true;
    const wait = setTimeout(() => { api.saveAs(text, name, complete, false).then((found) => { if (asked) { setMade(found); setWrong(""); } }, (error) => { if (asked) { setMade(null); setWrong(said(error)); } }); }, 150);
    return () => { asked = false; clearTimeout(wait); };
  }, [name, complete]);
  const save = () => api.saveAs(text, name, complete, true).then((found) => onSaved(found.file!), (error) => setWrong(said(error)));
  return (
    <Dialog title="Save as" onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void save(); }}>
        <label>name <input type="text" autofocus value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>
        <p class="note">{file.folder}/{name}.json</p>
        <p>
          <label><input type="radio" name="form" value="variant" checked={!complete} disabled={!extending} onChange={() => setComplete(false)} /> a variant: what differs from {file.name}</label><br />
          <label><input type="radio" name="form" value="complete" checked={complete} onChange={() => setComplete(true)} /> the complete text</label>
        </p>
        {wrong && <p class="wrong">{wrong}</p>}
        {made && <p class="note">{made.text.trim().split("\n").length} lines</p>}
        {made && <pre class="code">{made.text}</pre>}
        <button class="main" disabled={!made}>Save</button>
      </form>
    </Dialog>
  );
}

export function Code({ text, pass, node, onClose }: { text: string; pass: string; node: string; onClose: () => void }) {
  const [code, setCode] = useState("");
  const [wrong, setWrong] = useState("");
  const first = useRef<HTMLElement>(null);
  useEffect(() => { api.code(text, pass).then((found) => setCode(found.code), (error) => setWrong(said(error))); }, []);
  // Names of modules in the code: `self.encoder` and, inside the class of its template, `self.attention`.
  const names = useMemo(() => (node ? [node.split("/")[0].split(".").filter((part) => !/^[\d*]/.test(part)).pop()!] : []), [node]);
  const marks = (line: string) => names.some((name) => new RegExp(`\\b${name.replace(/[^\w]/g, "")}\\b`).test(line));
  const lines = code.split("\n");
  const start = lines.findIndex(marks);
  useEffect(() => { first.current?.scrollIntoView({ block: "center" }); }, [code]);
  return (
    <Dialog title={node ? `Generated code of ${node}` : "Generated code"} onClose={onClose} wide>
      {wrong && <p class="wrong">{wrong}</p>}
      {!code && !wrong && <p>Generating…</p>}
      <pre class="code">{lines.map((line, i) => marks(line) ? <mark key={i} ref={i === start ? first : undefined}>{line}{"\n"}</mark> : <span key={i}>{line}{"\n"}</span>)}</pre>
    </Dialog>
  );
}

export function Compare({ text, specs, name, dark, stateKey, onClose }: { text: string; specs: string[]; name: string; dark: boolean; stateKey: string; onClose: () => void }) {
  const [other, setOther] = useState("");
  const [found, setFound] = useState<Compared | null>(null);
  const [wrong, setWrong] = useState("");
  const [share, setShare] = useState(50);
  useEffect(() => { setFound(null); setWrong(""); api.diff(text, other, stateKey).then(setFound, (error) => setWrong(said(error))); }, [other]);
  return (
    <Dialog title="Compare" onClose={onClose} wide>
      <div class="row">
        <label>with <select value={other} onChange={(event) => setOther(event.currentTarget.value)}><option value="">{name} on disk</option>{specs.map((one) => <option key={one}>{one}</option>)}</select></label>
        {found && <span class="note">{found.equal ? "equal" : `${found.lines.length} changes`} · {short(found.parameters[0])} → {short(found.parameters[1])} parameters · {short(found.flops[0])} → {short(found.flops[1])} FLOPs</span>}
      </div>
      {wrong && <p class="wrong">{wrong}</p>}
      {found && <>
        <label class="slider">before <input type="range" aria-label="slide between before and after" min="0" max="100" value={share} onInput={(event) => setShare(Number(event.currentTarget.value))} /> after</label>
        <div class="both">
          <Overlay scene={found.old} other={found.new} dark={dark} clip={`inset(0 ${share}% 0 0)`} />
          <Overlay scene={found.new} other={found.old} dark={dark} clip={`inset(0 0 0 ${100 - share}%)`} />
          <i class="line" style={{ left: `${100 - share}%` }} />
        </div>
        <ul class="changes">{found.lines.map((line, i) => <li key={i} data-mark={line.mark}><b>{line.mark}</b> <code>{line.place}</code> {line.text}</li>)}</ul>
      </>}
    </Dialog>
  );
}

function Overlay({ scene, other, dark, clip }: { scene: Scene; other: Scene; dark: boolean; clip: string }) {
  const drawing: Drawing = Object.values(scene.states)[0], second = Object.values(other.states)[0];
  const width = Math.max(drawing.width, second.width), height = Math.max(drawing.height, second.height);
  const colors = palette(dark);
  const looks: Looks = { drawing, facts: scene.facts, colors, sight: null, scale: 1, foldable: () => "", marks: { chosen: "", found: null, wrong: new Map(), masks: true, heat: "", most: 1, types: false } };
  // Both stand on the same line, so that equal boxes lie on each other as far as they can.
  return (
    <svg viewBox={`${(drawing.width - width) / 2} ${drawing.height - height} ${width} ${height}`} style={{ clipPath: clip }} role="img" aria-label={scene.name}>
      <rect x={(drawing.width - width) / 2} y={drawing.height - height} width={width} height={height} fill={colors.ground} />
      <Drawn {...looks} />
    </svg>
  );
}
