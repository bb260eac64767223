// JSON Pointers in the syntax tree of the editor.
import { ensureSyntaxTree, syntaxTree } from "@codemirror/language";
import type { EditorState } from "@codemirror/state";

type Node = ReturnType<typeof syntaxTree>["topNode"];

const keyOf = (state: EditorState, property: Node): string => {
  const name = property.getChild("PropertyName");
  try { return name ? JSON.parse(state.sliceDoc(name.from, name.to)) : ""; } catch { return ""; }
};
const values = (node: Node): Node[] => {
  const found: Node[] = [];
  for (let child = node.firstChild; child; child = child.nextSibling) {
    if (!["{", "}", "[", "]", ",", "⚠", "PropertyName", ":"].includes(child.name)) found.push(child);
  }
  return found;
};
const escaped = (part: string): string => part.replace(/~/g, "~0").replace(/\//g, "~1");

/** The range of the value at a pointer, with its key. */
export function rangeOf(state: EditorState, pointer: string): { from: number; to: number } | null {
  let node: Node | null = ensureSyntaxTree(state, state.doc.length, 200)?.topNode.firstChild ?? null;
  let range = node && { from: node.from, to: node.to };
  for (const raw of pointer.split("/").slice(1)) {
    const part = raw.replace(/~1/g, "/").replace(/~0/g, "~");
    if (!node) return null;
    if (node.name === "Object") {
      const property: Node | undefined = node.getChildren("Property").find((one) => keyOf(state, one) === part);
      if (!property) return null;
      range = { from: property.from, to: property.to };
      node = property.lastChild;
    } else if (node.name === "Array") {
      node = values(node)[Number(part)] ?? null;
      range = node && { from: node.from, to: node.to };
    } else return null;
  }
  return range;
}

/** The pointer of what is at an offset. */
export function pointerAt(state: EditorState, offset: number): string {
  const parts: string[] = [];
  let node: Node | null = syntaxTree(state).resolveInner(offset, 0);
  while (node) {
    if (node.name === "Property") parts.unshift(escaped(keyOf(state, node)));
    const parent: Node | null = node.parent;
    if (parent?.name === "Array") parts.unshift(String(values(parent).findIndex((one) => one.from === node!.from)));
    node = parent;
  }
  return parts.map((part) => `/${part}`).join("");
}
