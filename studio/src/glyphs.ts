// Texts that the standard fonts of PDF do not have, as outlines in a Type 3 font.
//
// The browser draws a text on a canvas, with its fonts, joined letters and marks; the outlines are traced
// from there. So the file needs no font, and its texts can be searched and copied.

/** Size at which texts are traced, in pixels, which are the units of the font. */
const EM = 128;
/** Pixels around the text: letters may reach beyond their width. */
const MARGIN = 32;
/** Number of texts in a font. */
const MOST = 255;
/** Largest distance from the traced outline, in pixels, of a point that is left out. */
const NEAR = 0.08;

interface Glyph { text: string; width: number; path: string; box: string }

const round = (value: number): string => String(+value.toFixed(2));

/** The outline of the alpha of an image at one half: closed lines in which points between pixels are interpolated. */
export function traced(alpha: (x: number, y: number) => number, width: number, height: number): [number, number][][] {
  const level = 127.5, ends = new Map<string, string>(), points = new Map<string, [number, number]>();
  const cut = (a: number, b: number) => (level - a) / (b - a);
  for (let y = 0; y < height - 1; y++) {
    for (let x = 0; x < width - 1; x++) {
      const [a, b, c, d] = [alpha(x, y), alpha(x + 1, y), alpha(x + 1, y + 1), alpha(x, y + 1)];
      const corners = (a > level ? 8 : 0) + (b > level ? 4 : 0) + (c > level ? 2 : 0) + (d > level ? 1 : 0);
      if (corners === 0 || corners === 15) continue;
      const top = `h${x},${y}`, bottom = `h${x},${y + 1}`, left = `v${x},${y}`, right = `v${x + 1},${y}`;
      if (a > level !== b > level) points.set(top, [x + cut(a, b), y]);
      if (d > level !== c > level) points.set(bottom, [x + cut(d, c), y + 1]);
      if (a > level !== d > level) points.set(left, [x, y + cut(a, d)]);
      if (b > level !== c > level) points.set(right, [x + 1, y + cut(b, c)]);
      // The inside is on the right of each line.
      const lines: [string, string][] = {
        1: [[left, bottom]], 2: [[bottom, right]], 3: [[left, right]], 4: [[right, top]], 5: [[right, top], [left, bottom]], 6: [[bottom, top]], 7: [[left, top]],
        8: [[top, left]], 9: [[top, bottom]], 10: [[top, left], [bottom, right]], 11: [[top, right]], 12: [[right, left]], 13: [[right, bottom]], 14: [[bottom, left]],
      }[corners] as [string, string][];
      for (const [from, to] of lines) ends.set(from, to);
    }
  }
  const found: [number, number][][] = [];
  while (ends.size) {
    const outline: [number, number][] = [];
    for (let at = ends.keys().next().value as string | undefined; at !== undefined && ends.has(at);) {
      const after: string = ends.get(at)!;
      ends.delete(at);
      outline.push(points.get(at)!);
      at = after;
    }
    found.push(fewer(outline));
  }
  return found;
}

/** An outline without the points that lie on a line between their neighbors. */
function fewer(points: [number, number][]): [number, number][] {
  const kept: [number, number][] = [];
  points.forEach((point, i) => {
    const [x, y] = kept.at(-1) ?? points.at(-1)!, [u, v] = points[(i + 1) % points.length];
    const off = Math.abs((u - x) * (point[1] - y) - (v - y) * (point[0] - x)) / (Math.hypot(u - x, v - y) || 1);
    if (off > NEAR) kept.push(point);
  });
  return kept;
}

/** The fonts of the texts of one file. */
export class Outlines {
  readonly glyphs: Glyph[] = [];
  private readonly known = new Map<string, number>();

  /** The font and the code of a text, which is added if it is new. */
  add(text: string): [font: string, code: number] {
    if (!this.known.has(text)) this.known.set(text, this.glyphs.push(draw(text)) - 1);
    const index = this.known.get(text)!;
    return [`U${Math.floor(index / MOST)}`, (index % MOST) + 1];
  }

  /** The names of the fonts, and for each the objects of a PDF: the font first, whose number is `first`. */
  fonts(first: number): { name: string; objects: string[] }[] {
    const found: { name: string; objects: string[] }[] = [];
    for (let start = 0, at = first; start < this.glyphs.length; start += MOST) {
      const some = this.glyphs.slice(start, start + MOST);
      const stream = (text: string) => `<< /Length ${text.length} >>\nstream\n${text}\nendstream`;
      const hex = (text: string) => text.split("").map((unit) => unit.charCodeAt(0).toString(16).padStart(4, "0")).join("");
      const lines = some.map((glyph, i) => `<${(i + 1).toString(16).padStart(2, "0")}> <${hex(glyph.text)}>`);
      const blocks = [0, 100, 200].map((i) => lines.slice(i, i + 100)).filter((block) => block.length).map((block) => `${block.length} beginbfchar\n${block.join("\n")}\nendbfchar`);
      const unicode = `/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Weft def /CMapType 2 def\n1 begincodespacerange <00> <ff> endcodespacerange\n${blocks.join("\n")}\nendcmap end end`;
      const procs = some.map((_, i) => `/g${i + 1} ${at + 2 + i} 0 R`).join(" ");
      const font = `<< /Type /Font /Subtype /Type3 /FontBBox [${-MARGIN} ${-EM} ${8 * EM} ${2 * EM}] /FontMatrix [${1 / EM} 0 0 ${1 / EM} 0 0] /Resources << >> /FirstChar 1 /LastChar ${some.length} `
        + `/Widths [${some.map((glyph) => round(glyph.width)).join(" ")}] /Encoding << /Type /Encoding /Differences [1 ${some.map((_, i) => `/g${i + 1}`).join(" ")}] >> /CharProcs << ${procs} >> /ToUnicode ${at + 1} 0 R >>`;
      const objects = [font, stream(unicode), ...some.map((glyph) => stream(`${round(glyph.width)} 0 ${glyph.box} d1\n${glyph.path}`))];
      found.push({ name: `U${start / MOST}`, objects });
      at += objects.length;
    }
    return found;
  }
}

function draw(text: string): Glyph {
  const canvas = document.createElement("canvas"), font = `${EM}px Helvetica, Arial, sans-serif`;
  let pen = canvas.getContext("2d", { willReadFrequently: true })!;
  pen.font = font;
  const width = pen.measureText(text).width, base = Math.round(1.5 * EM);
  [canvas.width, canvas.height] = [Math.ceil(width) + 2 * MARGIN, 2 * EM + MARGIN];
  pen = canvas.getContext("2d", { willReadFrequently: true })!;
  pen.font = font;
  pen.fillText(text, MARGIN, base);
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  const outlines = traced((x, y) => data[4 * (y * canvas.width + x) + 3], canvas.width, canvas.height).filter((outline) => outline.length > 2);
  const moved = outlines.map((outline) => outline.map(([x, y]): [number, number] => [x + 0.5 - MARGIN, base - y - 0.5]));
  const all = moved.flat(), span = (axis: 0 | 1) => all.reduce(([low, high], point) => [Math.min(low, point[axis]), Math.max(high, point[axis])], [0, 0]);
  const [[left, right], [bottom, top]] = [span(0), span(1)];
  const path = moved.map((outline) => `${outline.map(([x, y], i) => `${round(x)} ${round(y)} ${i ? "l" : "m"}`).join(" ")} h`).join("\n");
  return { text, width, path: path ? `${path}\nf*` : "", box: [left, bottom, right, top].map(round).join(" ") };
}
