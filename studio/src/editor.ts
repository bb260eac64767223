// The text: CodeMirror with JSON, findings as marks, completion and hover from the server.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type CompletionContext } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, isolateHistory, redo, undo } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { bracketMatching, codeFolding, foldGutter, foldKeymap, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration, drawSelection, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers, tooltips, type DecorationSet } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { api, charactersOf, unitsOf, type Finding, type TextEdit } from "./api";
import { pointerAt, rangeOf } from "./json";

const style = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--key)" },
  { tag: tags.string, color: "var(--string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--number)" },
  { tag: tags.invalid, color: "var(--wrong)" },
]);

const theme = EditorView.theme({
  "&": { fontSize: "12.5px", color: "var(--ink)", backgroundColor: "var(--ground)" },
  ".cm-scroller": { fontFamily: 'ui-monospace, "SF Mono", Consolas, monospace', lineHeight: "1.5" },
  ".cm-gutters": { backgroundColor: "var(--bar)", color: "var(--dim)", border: "none", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--chosen) 8%, transparent)" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--chosen) 25%, transparent) !important" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", border: "1px solid var(--line)", borderRadius: "7px", color: "var(--ink)", maxWidth: "460px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--chosen)", color: "var(--ground)" },
  ".cm-panels": { backgroundColor: "var(--bar)", color: "var(--ink)" },
  ".cm-told": { padding: "4px 10px", whiteSpace: "pre-wrap", fontSize: "12.5px", fontFamily: "system-ui, sans-serif" },
  ".cm-told p": { margin: "4px 0" },
  ".cm-chosen": { backgroundColor: "var(--mark)" },
});

const setChosen = StateEffect.define<{ from: number; to: number } | null>();
const chosen = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(value, transaction) {
    value = value.map(transaction.changes);
    for (const effect of transaction.effects) {
      if (effect.is(setChosen)) value = effect.value ? Decoration.set([Decoration.mark({ class: "cm-chosen" }).range(effect.value.from, effect.value.to)]) : Decoration.none;
    }
    return value;
  },
  provide: (field) => EditorView.decorations.from(field),
});

const TYPES: Record<string, string> = { key: "property", block: "class", value: "variable", param: "variable", template: "type" };

async function complete(context: CompletionContext) {
  const before = context.state.sliceDoc(Math.max(0, context.pos - 1), context.pos);
  if (!context.explicit && !/["\w@=./]/.test(before)) return null;
  const text = context.state.doc.toString();
  try {
    const { items } = await api.complete(text, charactersOf(text, context.pos));
    if (!items.length) return null;
    const [from, to] = [unitsOf(text, items[0].start), unitsOf(text, items[0].end)];
    return {
      from, to,
      options: items.filter((item) => item.start === items[0].start && item.end === items[0].end).map((item, index) => ({
        label: item.label, displayLabel: item.label, detail: item.detail.slice(0, 60), info: item.doc || undefined, type: TYPES[item.kind] ?? "text", boost: -Math.min(99, index),
        apply: (view: EditorView) => {
          // The cursor stays inside of what was inserted, if there are quotes or brackets to fill.
          const gap = item.new.search(/(""|\[\]|\{\})[^\w"]*$/);
          view.dispatch({ changes: { from, to: Math.max(to, view.state.selection.main.head), insert: item.new }, selection: { anchor: from + (gap < 0 ? item.new.length : gap + 1) }, userEvent: "input.complete" });
        },
      })),
      filter: true,
      validFor: /^"?[\w@./=-]*$/,
    };
  } catch { return null; }
}

/** Markdown of the server as elements: emphasis and code only, and every text as text. */
export function told(markdown: string): HTMLElement {
  const root = document.createElement("div");
  root.className = "cm-told";
  for (const block of markdown.split(/\n{2,}/)) {
    const paragraph = root.appendChild(document.createElement("p"));
    for (const piece of block.replace(/^```\w*\n?|```$/g, "").split(/(`[^`]+`|\*\*[^*]+\*\*)/)) {
      const mark = piece.startsWith("`") ? "code" : piece.startsWith("**") ? "b" : "";
      const text = mark ? piece.replace(/^(`|\*\*)|(`|\*\*)$/g, "") : piece;
      if (mark) paragraph.appendChild(document.createElement(mark)).textContent = text;
      else paragraph.append(text);
    }
  }
  return root;
}

const hover = hoverTooltip(async (view, pos) => {
  const text = view.state.doc.toString();
  try {
    const { hover: found } = await api.hover(text, charactersOf(text, pos));
    if (!found) return null;
    return { pos: unitsOf(text, found.start), end: unitsOf(text, found.end), above: true, create: () => ({ dom: told(found.markdown) }) };
  } catch { return null; }
}, { hoverTime: 350 });

export interface Hooks {
  changed: (text: string) => void;
  moved: (view: EditorView) => void;
  save: () => void;
}

const writing = new Compartment();

export function makeEditor(parent: HTMLElement, text: string, fixed: boolean, hooks: Hooks): EditorView {
  const nonce = document.querySelector<HTMLMetaElement>("meta[name=nonce]")?.content ?? "";
  return new EditorView({
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        EditorView.cspNonce.of(nonce), tooltips({ parent: document.body, position: "absolute" }),
        lineNumbers(), foldGutter(), codeFolding(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(),
        highlightActiveLine(), highlightSelectionMatches(), search({ top: true }), lintGutter(), json(), indentUnit.of("  "),
        syntaxHighlighting(style), theme, chosen, hover,
        autocompletion({ override: [complete], activateOnTyping: true }),
        EditorState.lineSeparator.of("\n"), writing.of(EditorState.readOnly.of(fixed)),
        EditorView.contentAttributes.of({ "aria-label": "text of the spec" }),
        keymap.of([
          { key: "Mod-s", run: () => { hooks.save(); return true; } },
          ...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...lintKeymap,
        ]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) hooks.changed(update.state.doc.toString());
          if (update.selectionSet && !update.docChanged && update.view.hasFocus) hooks.moved(update.view);
        }),
      ],
    }),
  });
}

/** Show the text of another file, which can be edited. */
export function showFile(view: EditorView, text: string): void {
  view.dispatch({ effects: writing.reconfigure(EditorState.readOnly.of(false)) });
  setText(view, text);
}

/** Replace the part of the text that differs, as one step of undo. */
export function setText(view: EditorView, text: string): void {
  const old = view.state.doc.toString();
  if (old === text) return;
  let from = 0;
  const most = Math.min(old.length, text.length);
  while (from < most && old[from] === text[from]) from++;
  let end = 0;
  while (end < most - from && old[old.length - 1 - end] === text[text.length - 1 - end]) end++;
  view.dispatch({
    changes: { from, to: old.length - end, insert: text.slice(from, text.length - end) },
    annotations: isolateHistory.of("full"),
    userEvent: "input.click",
  });
}

/** Replace the text by one that is made of it; it is made again if it was edited meanwhile. */
export async function changeText(view: EditorView, make: (text: string) => Promise<{ text: string }>): Promise<void> {
  for (;;) {
    const old = view.state.doc.toString(), made = await make(old);
    if (view.state.doc.toString() !== old) continue;
    setText(view, made.text);
    return;
  }
}

/** Mark the findings about a text; of a text that was edited since, other findings follow. */
export function showFindings(view: EditorView, text: string, findings: Finding[]): void {
  const most = view.state.doc.length;
  const marks: Diagnostic[] = findings.map((finding) => ({
    from: Math.min(unitsOf(text, finding.start), most), to: Math.min(unitsOf(text, finding.end), most),
    severity: finding.severity, source: finding.code, message: finding.message,
    actions: finding.fixes.map((fix) => ({ name: fix.title, apply: () => void applyFix(view, text, fix.edits) })),
  }));
  view.dispatch(setDiagnostics(view.state, marks));
}

/** Apply the fix of a finding about a text; return false if the text is read only, or was edited since. */
export function applyFix(view: EditorView, text: string, edits: TextEdit[]): boolean {
  if (view.state.readOnly || view.state.doc.toString() !== text) return false;
  view.dispatch({
    changes: edits.map((edit) => ({ from: unitsOf(text, edit.start), to: unitsOf(text, edit.end), insert: edit.new })),
    annotations: isolateHistory.of("full"), userEvent: "input.fix",
  });
  return true;
}

/** Mark a part of the text, and bring it into sight. */
export function markChosen(view: EditorView, pointer: string | null): void {
  const range = pointer === null ? null : rangeOf(view.state, pointer);
  view.dispatch({ effects: range ? [setChosen.of(range), EditorView.scrollIntoView(range.from, { y: "center" })] : [setChosen.of(null)] });
}

export { pointerAt, redo, undo };

export function goTo(view: EditorView, characters: number): void {
  const anchor = Math.min(unitsOf(view.state.doc.toString(), characters), view.state.doc.length);
  view.dispatch({ selection: { anchor }, effects: EditorView.scrollIntoView(anchor, { y: "center" }) });
  view.focus();
}

export function keepCursor(view: EditorView): void {
  view.dispatch({ effects: EditorView.scrollIntoView(view.state.selection.main.head, { y: "nearest", yMargin: 30 }) });
}
