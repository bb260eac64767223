// The studio: the text on the left, its drawing on the right. The text is the only state.
import type { EditorView } from "@codemirror/view";
import { render } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, Refusal, started, type File, type Look, type TextEdit, type Times } from "./api";
import { Code, Compare, Dialog, Menu, Palette, SaveAs, said } from "./dialogs";
import { Inspector, type Acts } from "./inspector";
import { Several } from "./params";
import { Run } from "./run";
import type { Box, Scene } from "./types";
import { Viewer } from "./viewer";
import type { Wiring } from "./wiring";

/** Time after the last keystroke until the checker is asked, in milliseconds. */
const PAUSE = 40;
/** Time between two looks at the file on disk. */
const WATCH = 1500;

/** An answer about a text, and the text. */
type Looked = Look & { of: string };

type Open =
  | { what: "menu"; path: string } | { what: "palette"; path: string; ports: string[]; after: boolean } | { what: "save" }
  | { what: "compare" } | { what: "code"; node: string } | { what: "keys" } | null;

/** The code of the editor, which is loaded after the first drawing; there is no editor before. */
let tools: typeof import("./editor");

function Studio({ first, looked }: { first: File; looked?: Look }) {
  const [file, setFile] = useState(first);
  const [text, setOwn] = useState(first.text);
  const [look, setLook] = useState<Looked>({ ...(looked ?? { findings: [] }), of: first.text });
  const [scene, setScene] = useState<Scene | null>(looked?.scene ?? null);
  const [key, setKey] = useState("");
  const [pass, setPass] = useState("");
  const [sizes, setSizes] = useState<Record<string, number>>({});
  const [chosen, setChosen] = useState("");
  const [picked, setPicked] = useState<string[]>([]);
  const [dark, setDark] = useState(matchMedia("(prefers-color-scheme: dark)").matches);
  const [open, setOpen] = useState<Open>(null);
  const [note, setNote] = useState<{ text: string; wrong: boolean } | null>(null);
  const [outside, setOutside] = useState<File | null>(null);
  const [saved, setSaved] = useState(first.text);
  const [split, setSplit] = useState(first.checkpoint ? 28 : 40);
  const [dock, setDock] = useState(first.checkpoint !== null);
  const [low, setLow] = useState(47);
  const [measuring, setMeasuring] = useState(false);
  const [times, setTimes] = useState<{ of: string; turn: number; found: Times } | null>(null);
  const holder = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorView | null>(null);
  const [ready, setReady] = useState(false);
  const turn = useRef(0);
  const fileNow = useRef(file);
  fileNow.current = file;
  const lookNow = useRef(look);
  lookNow.current = look;

  const tell = (message: string, wrong = false) => setNote({ text: message, wrong });
  useEffect(() => {
    if (!note || note.wrong) return;
    const wait = setTimeout(() => setNote(null), 4000);
    return () => clearTimeout(wait);
  }, [note]);
  useEffect(() => { document.documentElement.dataset.theme = dark ? "dark" : "light"; }, [dark]);

  const save = useCallback((force = false) => {
    if (!editor.current) return;
    const now = editor.current.state.doc.toString(), { digest, writable } = fileNow.current;
    if (!writable) { setOpen({ what: "save" }); return; }
    const expected = force ? api.file().then((disk) => disk.digest) : Promise.resolve(digest);
    expected.then((known) => api.save(now, known)).then(
      (done) => { setFile((old) => ({ ...old, digest: done.digest, text: now })); setSaved(now); setOutside(null); tell("saved"); },
      (error) => {
        if (error instanceof Refusal && error.status === 409) void api.file().then(setOutside);
        tell(said(error), true);
      },
    );
  }, []);

  useEffect(() => {
    const make = () => import("./editor").then((code) => {
      tools = code;
      const view = editor.current = code.makeEditor(holder.current!, first.text, first.checkpoint !== null, {
        changed: setOwn,
        moved: (moved) => setCursor(code.pointerAt(moved.state, moved.state.selection.main.head)),
        save: () => save(),
      });
      (window as unknown as { weftEditor: EditorView }).weftEditor = view;
      code.showFindings(view, lookNow.current.of, lookNow.current.findings);
      setReady(true);
    }).catch((error) => tell(said(error), true));
    requestAnimationFrame(() => setTimeout(make)); // when the drawing is on the screen
    return () => editor.current?.destroy();
  }, []);
  const [cursor, setCursor] = useState("");

  // Ask the checker about the text; an answer about an older text is dropped.
  useEffect(() => {
    const mine = ++turn.current;
    if (mine === 1 && looked) return;
    const wait = setTimeout(() => {
      api.look({ text, key, sizes, pass }).then((found) => {
        if (mine !== turn.current) return;
        setLook({ ...found, of: text });
        if (found.scene) setScene(found.scene);
        if (editor.current) tools.showFindings(editor.current, text, found.findings);
        setNote((old) => (old?.wrong ? null : old));
      }, (error) => { if (mine === turn.current) tell(said(error), true); });
    }, mine === 1 ? 0 : PAUSE);
    return () => clearTimeout(wait);
  }, [text, key, sizes, pass]);

  // The findings below the text may have hidden the cursor.
  useEffect(() => {
    const frame = requestAnimationFrame(() => { if (editor.current?.hasFocus) tools.keepCursor(editor.current); });
    return () => cancelAnimationFrame(frame);
  }, [look]);

  // Watch the file on disk.
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.hidden) return;
      api.file().then((disk) => { if (disk.digest !== fileNow.current.digest) setOutside(disk); }, () => {});
    }, WATCH);
    return () => clearInterval(timer);
  }, []);
  const dirty = text !== saved;
  useEffect(() => {
    const leave = (event: BeforeUnloadEvent) => { if (dirty) event.preventDefault(); };
    addEventListener("beforeunload", leave);
    return () => removeEventListener("beforeunload", leave);
  }, [dirty]);
  useEffect(() => { document.title = `${dirty ? "• " : ""}${file.name} · weft studio`; }, [dirty, file]);

  // The times that were measured of this text at these sizes.
  const measuredOf = JSON.stringify([text, scene?.sizes]);
  const timed: Scene | null = useMemo(() => {
    if (!scene || pass || times?.of !== measuredOf) return scene;
    const facts = Object.fromEntries(Object.entries(scene.facts).map(([path, fact]) => [path, { ...fact, time: times.found.nodes[path] ?? 0 }]));
    return { ...scene, facts };
  }, [scene, pass, times, measuredOf]);
  const measure = useCallback(() => {
    if (!scene) return;
    setMeasuring(true);
    api.times(text, scene.sizes).then((found) => {
      setTimes((old) => ({ of: JSON.stringify([text, scene.sizes]), turn: (old?.turn ?? 0) + 1, found }));
      tell(`a forward pass takes ${(found.seconds * 1e3).toFixed(1)} ms on the ${found.device === "cpu" ? "CPU" : "GPU"} (profiled, mean of ${found.passes})`);
    }, (error) => tell(said(error), true)).finally(() => setMeasuring(false));
  }, [text, scene]);

  const drawing = scene && Object.values(scene.states)[0];
  const boxOf = useCallback((pointer: string): Box | undefined => {
    if (!scene || !drawing) return undefined;
    let best: Box | undefined, length = 0;
    for (const box of drawing.boxes) {
      for (const path of box.fact ? [box.fact, ...Object.keys(scene.facts).filter((one) => one.startsWith(`${box.fact}/`))] : []) {
        const written = scene.facts[path].written;
        const at = written?.file === file.path ? written.pointer : "";
        if (at && at.length > length && (pointer === at || pointer.startsWith(`${at}/`))) { best = box; length = at.length; }
      }
    }
    return best;
  }, [scene, drawing, file]);
  useEffect(() => { if (cursor) { const box = boxOf(cursor); if (box) { setChosen(box.id); setPicked([]); } } }, [cursor]);
  const wrong = useMemo(() => {
    const found = new Map<string, string>();
    for (const finding of look.findings) {
      if (finding.severity !== "error" || !finding.here) continue;
      const box = boxOf(finding.pointer);
      if (box) found.set(box.id, finding.problem);
    }
    return found;
  }, [look, boxOf]);
  const choose = useCallback((id: string) => {
    setChosen(id);
    const box = drawing?.boxes.find((one) => one.id === id);
    const written = box?.fact ? scene!.facts[box.fact].written : undefined;
    if (editor.current) tools.markChosen(editor.current, written?.file === file.path ? written.pointer : null);
  }, [scene, drawing, file]);

  const showSaved = (other: File) => {
    setOpen(null);
    setFile(other);
    setSaved(other.text);
    setOutside(null);
    setDock(false);
    tools.showFile(editor.current!, other.text);
    tell(`saved and opened ${other.path}`);
  };
  const edit = useCallback(async (what: Record<string, unknown>): Promise<boolean> => {
    const view = editor.current;
    if (!view) return false;
    try {
      await tools.changeText(view, (now) => api.edit(now, what));
      return true;
    } catch (error) { tell(said(error), true); return false; }
  }, []);
  const rename = useCallback(async (path: string, name: string): Promise<boolean> => {
    const done = await edit({ what: "rename", path, name });
    const after = (old: string) => (old === path || old.startsWith(`${path}.`) ? path.replace(/[^.]+$/, name) + old.slice(path.length) : old);
    if (done) {
      setChosen(`node/${after(path)}`);
      setKey((old) => old.split(" ").filter(Boolean).map((word) => word[0] + after(word.slice(1))).join(" "));
    }
    return done;
  }, [edit]);
  const acts: Acts = useMemo(() => ({
    edit, rename,
    menu: (path) => setOpen({ what: "menu", path }),
    palette: (path, ports, after) => setOpen({ what: "palette", path, ports, after }),
    code: (node) => setOpen({ what: "code", node }),
  }), [edit, rename]);
  const errors = look.findings.filter((one) => one.severity === "error");
  const editable = look.editable === true && !pass;
  const wiring: Wiring | undefined = useMemo(() => (editable ? {
    ports: (path, inside) => api.ports(text, path, inside).then((found) => found.values, (error) => { tell(said(error), true); throw error; }),
    connect: (path, port, value) => void edit({ what: "wire", path, port, value }),
  } : undefined), [editable, text, edit]);
  const onMenu = (box: Box) => {
    const fact = box.fact ? scene!.facts[box.fact] : undefined;
    if (editable && fact?.use.includes("@")) acts.menu(scene!.facts[`${box.fact}/f`] ? `${box.fact}/f` : box.fact!);
  };
  const dragged = (event: PointerEvent, move: (moved: PointerEvent) => void) => {
    const stop = () => { removeEventListener("pointermove", move); removeEventListener("pointerup", stop); };
    event.preventDefault();
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
  };
  const slide = (event: PointerEvent) => dragged(event, (moved) => setSplit(Math.max(12, Math.min(80, (moved.clientX / innerWidth) * 100))));
  const raise = (event: PointerEvent) => {
    const { bottom, height } = (event.currentTarget as Element).parentElement!.getBoundingClientRect();
    dragged(event, (moved) => setLow(Math.max(15, Math.min(75, ((bottom - moved.clientY) / height) * 100))));
  };

  return (
    <div class="studio">
      <div class="bar top" role="toolbar" aria-label="file" inert={!ready}>
        <b class="name" title={file.path}>{file.name}{dirty ? " •" : ""}</b>
        {!file.checkpoint && <button class="main" onClick={() => save()} disabled={!dirty && file.writable} title="save (Ctrl S)">Save</button>}
        <button onClick={() => setOpen({ what: "save" })}>Save as…</button>
        {!file.checkpoint && <span class="group">
          <button aria-label="undo" title="undo (Ctrl Z)" onClick={() => tools.undo(editor.current!)}>↶</button>
          <button aria-label="redo" title="redo" onClick={() => tools.redo(editor.current!)}>↷</button>
        </span>}
        <button onClick={() => setOpen({ what: "compare" })} disabled={errors.length > 0}>Compare…</button>
        <label>after <select aria-label="compile pass" value={pass} onChange={(event) => setPass(event.currentTarget.value)}>
          <option value="">no pass</option>{file.passes.map((one) => <option key={one}>{one}</option>)}
        </select></label>
        {!file.checkpoint && <button onClick={() => tools.changeText(editor.current!, api.format).catch((error) => tell(said(error), true))} title="lay the text out as shipped specs are">Format</button>}
        <button onClick={() => setOpen({ what: "code", node: "" })} disabled={errors.length > 0}>Code</button>
        {scene && <span class="sizes">{Object.entries(scene.sizes).map(([axis, size]) => (
          <label key={axis}>{axis} <input type="number" min="1" aria-label={`size of ${axis}`} value={size} onChange={(event) => { const value = Math.round(Number(event.currentTarget.value)); if (value > 0) setSizes({ ...sizes, [axis]: value }); }} /></label>
        ))}</span>}
        {file.checkpoint && <button aria-pressed={dock} onClick={() => setDock(!dock)} title="curves and attention of the checkpoint">Run</button>}
        <button onClick={() => setOpen({ what: "keys" })} aria-label="keys" title="keys">?</button>
      </div>
      {outside && (
        <div class="banner" role="alert">The file changed on disk.
          <button class="main" disabled={!ready} onClick={() => { tools.setText(editor.current!, outside.text); setFile(outside); setSaved(outside.text); setOutside(null); }}>Take the text on disk</button>
          <button onClick={() => { setFile({ ...file, digest: outside.digest }); setOutside(null); }}>Keep mine</button>
        </div>
      )}
      <div class={`split${dock ? " docked" : ""}`} style={{ gridTemplateColumns: `${split}% 5px 1fr` }}>
        <div class="left" inert={!ready}>
          <div class="text" ref={holder} />
          <Findings look={look} onFix={(edits) => { if (!tools.applyFix(editor.current!, look.of, edits)) tell(file.checkpoint ? "a checkpoint is not edited; save its spec as a file" : "the text has changed since this finding", true); }} onGo={(start) => tools.goTo(editor.current!, start)} />
        </div>
        <div class="divider" role="separator" aria-orientation="vertical" tabIndex={0} aria-valuenow={Math.round(split)} aria-label="width of the text" onPointerDown={slide}
          onKeyDown={(event) => { if (event.key === "ArrowLeft") setSplit(Math.max(12, split - 3)); if (event.key === "ArrowRight") setSplit(Math.min(80, split + 3)); }} />
        <div class="right" style={dock ? { gridTemplateRows: `minmax(0, 1fr) 5px ${low}%` } : undefined}>
          {scene && timed ? <Viewer scene={timed} stateKey={Object.keys(scene.states)[0]} onKey={setKey} known={null} dark={dark} onDark={setDark} chosen={chosen} onChoose={choose} picked={picked} onPick={setPicked}
            several={(boxes) => <Several boxes={boxes} scene={timed} acts={acts} editable={editable} />}
            wrong={wrong} stale={!look.scene} onMenu={onMenu} wiring={wiring} onMeasure={errors.length || pass ? undefined : measure} measuring={measuring} measured={times?.turn ?? 0}
            inspector={(box) => <Inspector box={box} scene={timed} text={text} acts={acts} editable={editable} />} />
            : <p class="empty">{look.findings.length ? "Nothing can be drawn yet: see the findings." : "Drawing…"}</p>}
          {look.partial && scene && (!look.editable || look.missing?.length) && <div class="partial" role="status">{look.missing?.length ? `Drawn up to the mistakes: without ${look.missing.join(", ")}.` : "Drawn in spite of the mistakes."}</div>}
          {dock && scene && <>
            <div class="divider across" role="separator" aria-orientation="horizontal" tabIndex={0} aria-valuenow={Math.round(low)} aria-label="height of the run" onPointerDown={raise}
              onKeyDown={(event) => { if (event.key === "ArrowUp") setLow(Math.min(75, low + 3)); if (event.key === "ArrowDown") setLow(Math.max(15, low - 3)); }} />
            <Run scene={scene} box={drawing?.boxes.find((box) => box.id === chosen)} dark={dark} />
          </>}
        </div>
      </div>
      {note && <div class={`note-bar${note.wrong ? " wrong" : ""}`} role="status">{note.text} <button aria-label="close" onClick={() => setNote(null)}>×</button></div>}
      {open?.what === "menu" && <Menu text={text} path={open.path} onClose={() => setOpen(null)} onPick={(use, params) => { setOpen(null); void edit({ what: "swap", path: open.path, use, params }); }} />}
      {open?.what === "palette" && <Palette text={text} path={open.path} ports={open.ports} after={open.after} onClose={() => setOpen(null)} onPick={(use, port, params) => { setOpen(null); void edit({ what: "insert", path: open.path, use, port, params, after: open.after }); }} />}
      {open?.what === "save" && <SaveAs text={text} file={file} valid={!errors.length} onClose={() => setOpen(null)} onSaved={showSaved} />}
      {open?.what === "compare" && <Compare text={text} specs={file.specs} name={file.name} dark={dark} stateKey={key} onClose={() => setOpen(null)} />}
      {open?.what === "code" && <Code text={text} pass={pass} node={open.node} onClose={() => setOpen(null)} />}
      {open?.what === "keys" && <Keys onClose={() => setOpen(null)} />}
    </div>
  );
}

function Findings({ look, onFix, onGo }: { look: Look; onFix: (edits: TextEdit[]) => void; onGo: (start: number) => void }) {
  if (!look.findings.length) return <div class="findings good" role="status">{look.scene ? "valid" : ""}</div>;
  return (
    <div class="findings" role="status" aria-label="findings">
      {look.findings.map((one, index) => (
        <div key={index} class={`finding ${one.severity}`}>
          <button class="go" onClick={() => onGo(one.start)}><b>{one.code}</b> {one.problem}</button>
          {one.message.split("\n").slice(1).map((line) => <small key={line}>{line}</small>)}
          {one.fixes.map((fix) => <button key={fix.title} onClick={() => onFix(fix.edits)}>Fix: {fix.title}</button>)}
        </div>
      ))}
    </div>
  );
}

const KEYS: [string, string][] = [
  ["↑ ↓", "go along a wire"], ["← →", "go sideways"], ["Enter", "unfold, or open the menu of the node"], ["Space", "fold or unfold what is around"],
  ["f", "fold or unfold everything"], ["/", "search"], ["h", "next heat"], ["m", "masks"], ["t", "types of wires"], ["d", "dark mode"],
  ["Shift ← ↑ → ↓", "select one more; also Shift and a click, or a rectangle"], ["s", "select all nodes with the same blocks"], ["F2", "rename the node"],
  ["w", "draw a wire from the node: arrows choose a port, Enter wires, Esc cancels"],
  ["+ − 0", "zoom, fit"], ["Esc", "select nothing"], ["Ctrl S", "save"], ["Ctrl Z", "undo"], ["Ctrl Space", "complete, in the text"], ["Tab", "leave the text; Ctrl ] and Ctrl [ indent"],
];

function Keys({ onClose }: { onClose: () => void }) {
  return <Dialog title="Keys" onClose={onClose}><table class="keys"><tbody>{KEYS.map(([name, what]) => <tr key={name}><th>{name}</th><td>{what}</td></tr>)}</tbody></table></Dialog>;
}

const root = document.getElementById("root")!;
started.then(
  ({ file, look }) => render(<Studio first={file} looked={look} />, root),
  (error) => render(<p class="empty wrong">{said(error)}</p>, root),
);
