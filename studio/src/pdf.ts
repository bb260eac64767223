// A small writer of PDF: the shapes and texts of a drawing as vectors, on a page of its size.
import { Outlines } from "./glyphs";

type Style = Record<"fill" | "stroke" | "stroke-width" | "stroke-dasharray" | "font-size" | "text-anchor" | "paint-order" | "stroke-linejoin", string>;

const START: Style = {
  fill: "#000000", stroke: "none", "stroke-width": "1", "stroke-dasharray": "", "font-size": "12", "text-anchor": "start", "paint-order": "", "stroke-linejoin": "",
};
/** Largest page that readers accept, in points. */
const LARGEST = 14_400;
/** Characters of the code page WinAnsi between 128 and 159. */
const WINDOWS = "€\0‚ƒ„…†‡ˆ‰Š‹Œ\0Ž\0\0‘’“”•–—˜™š›œ\0žŸ";
/** Characters of the font Symbol. */
const SYMBOLS: Record<string, number> = Object.fromEntries([
  ..."ΑΒΧΔΕΦΓΗΙ".split("").map((sign, i) => [sign, 0x41 + i]), ..."ΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ".split("").map((sign, i) => [sign, 0x4b + i]),
  ..."αβχδεφγηι".split("").map((sign, i) => [sign, 0x61 + i]), ..."κλμνοπθρστυϖωξψζ".split("").map((sign, i) => [sign, 0x6b + i]),
  ["−", 0x2d], ["≤", 0xa3], ["∞", 0xa5], ["←", 0xac], ["↑", 0xad], ["→", 0xae], ["↓", 0xaf], ["≥", 0xb3], ["∂", 0xb6], ["≠", 0xb9], ["≡", 0xba], ["≈", 0xbb],
  ["⊗", 0xc4], ["⊕", 0xc5], ["∈", 0xce], ["∏", 0xd5], ["√", 0xd6], ["⋅", 0xd7], ["∑", 0xe5], ["∫", 0xf2],
]);

/** The font and the code of a character in the fonts that every reader has; null if none has it. */
function codeOf(sign: string): [font: "F" | "S" | "Z", code: number] | null {
  const point = sign.codePointAt(0)!;
  if ((point >= 32 && point < 127) || (point >= 160 && point < 256)) return ["F", point];
  if (WINDOWS.includes(sign)) return ["F", 128 + WINDOWS.indexOf(sign)];
  if (sign in SYMBOLS) return ["S", SYMBOLS[sign]];
  if (point >= 0x2701 && point <= 0x275e) return ["Z", point - 0x26e0];
  return null;
}

/** A text in characters with a code, and between them texts without, which are drawn as a whole. */
function pieces(text: string): [sign: string, code: [string, number] | null][] {
  const found: [string, [string, number] | null][] = [];
  for (const sign of text) {
    const code = /^\p{M}$/u.test(sign) ? null : codeOf(sign), last = found.at(-1);
    // A mark belongs to the letter before it.
    if (!code && last && (!last[1] || /^\p{M}$/u.test(sign))) found[found.length - 1] = [last[0] + sign, null];
    else found.push([sign, code]);
  }
  return found;
}

const round = (value: number): string => String(+value.toFixed(2));

function colorOf(text: string): string | null {
  const hex = /^#(..)(..)(..)$/.exec(text), rgb = /^rgb\((\d+),\s*(\d+),\s*(\d+)\)$/.exec(text);
  const parts = hex ? hex.slice(1).map((part) => parseInt(part, 16)) : rgb?.slice(1).map(Number);
  return parts ? parts.map((part) => round(part / 255)).join(" ") : null;
}

/** A rectangle whose corners are arcs of a radius. */
function rectangle(x: number, y: number, w: number, h: number, r: number): string {
  const k = r * 0.5523;
  const at = (...values: number[]) => values.map(round).join(" ");
  if (!r) return `${at(x, y, w, h)} re`;
  return [
    `${at(x + r, y)} m`, `${at(x + w - r, y)} l`, `${at(x + w - r + k, y, x + w, y + r - k, x + w, y + r)} c`,
    `${at(x + w, y + h - r)} l`, `${at(x + w, y + h - r + k, x + w - r + k, y + h, x + w - r, y + h)} c`,
    `${at(x + r, y + h)} l`, `${at(x + r - k, y + h, x, y + h - r + k, x, y + h - r)} c`,
    `${at(x, y + r)} l`, `${at(x, y + r - k, x + r - k, y, x + r, y)} c h`,
  ].join(" ");
}

/** A path with the commands M, L, C and Z. */
function curve(d: string): string {
  return [...d.matchAll(/([MLCZ])([^MLCZ]*)/g)].map(([, command, rest]) => {
    const values = rest.trim().split(/[\s,]+/).filter(Boolean).map(Number).map(round);
    if (command === "Z") return "h";
    const size = command === "C" ? 6 : 2, parts: string[] = [];
    for (let i = 0; i < values.length; i += size) parts.push(`${values.slice(i, i + size).join(" ")} ${command.toLowerCase()}`);
    return parts.join(" ");
  }).join(" ");
}

class Writer {
  readonly lines: string[] = [];
  readonly opacities: number[] = [];
  /** Texts that the standard fonts do not have. */
  readonly outlines = new Outlines();
  private readonly ruler = document.createElement("canvas").getContext("2d")!;

  write(element: Element, outer: Style): void {
    if (element.tagName === "title") return;
    const own = { ...outer };
    for (const name of Object.keys(START) as (keyof Style)[]) own[name] = element.getAttribute(name) ?? own[name];
    const opacity = Number(element.getAttribute("opacity") ?? 1);
    if (opacity < 1) {
      if (!this.opacities.includes(opacity)) this.opacities.push(opacity);
      this.lines.push(`q /O${this.opacities.indexOf(opacity)} gs`);
    }
    const value = (name: string) => Number(element.getAttribute(name) ?? 0);
    if (element.tagName === "rect") {
      const [w, h] = [value("width"), value("height")];
      this.shape(rectangle(value("x"), value("y"), w, h, Math.min(value("rx"), w / 2, h / 2)), own);
    } else if (element.tagName === "circle") {
      const r = value("r");
      this.shape(rectangle(value("cx") - r, value("cy") - r, 2 * r, 2 * r, r), own);
    } else if (element.tagName === "path") this.shape(curve(element.getAttribute("d") ?? ""), own);
    else if (element.tagName === "text") this.text(element.textContent ?? "", value("x"), value("y"), own);
    else for (const inner of element.children) this.write(inner, own);
    if (opacity < 1) this.lines.push("Q");
  }

  private shape(path: string, style: Style): void {
    const fill = colorOf(style.fill), stroke = colorOf(style.stroke);
    if (!path || (!fill && !stroke)) return;
    if (fill) this.lines.push(`${fill} rg`);
    if (stroke) this.lines.push(`${stroke} RG ${round(Number(style["stroke-width"]))} w [${style["stroke-dasharray"]}] 0 d ${style["stroke-linejoin"] === "round" ? 1 : 0} j`);
    this.lines.push(`${path} ${fill && stroke ? "B" : fill ? "f" : "S"}`);
  }

  private text(content: string, x: number, y: number, style: Style): void {
    const fill = colorOf(style.fill), size = Number(style["font-size"]);
    if (!fill || !content.trim()) return;
    this.ruler.font = `${size}px Helvetica, Arial, sans-serif`;
    const wide = this.ruler.measureText(content).width;
    const left = x - wide * ({ start: 0, middle: 0.5, end: 1 }[style["text-anchor"]] ?? 0);
    const runs: { font: string; codes: number[]; text: string }[] = [];
    for (const [sign, found] of pieces(content)) {
      const [font, code] = found ?? this.outlines.add(sign);
      if (runs.at(-1)?.font !== font) runs.push({ font, codes: [], text: "" });
      runs.at(-1)!.codes.push(code);
      runs.at(-1)!.text += sign;
    }
    let at = left;
    const written = runs.map(({ font, codes, text }) => {
      const words = `/${font} ${round(size)} Tf 1 0 0 -1 ${round(at)} ${round(y)} Tm <${codes.map((code) => code.toString(16).padStart(2, "0")).join("")}> Tj`;
      at += this.ruler.measureText(text).width;
      return words;
    });
    const shown = written.join(" ");
    const edge = style["paint-order"] === "stroke" ? colorOf(style.stroke) : null;
    // The outlines of a Type 3 font cannot be stroked.
    const stroked = written.filter((_, i) => !runs[i].font.startsWith("U")).join(" ");
    if (edge && stroked) this.lines.push(`BT 1 Tr ${edge} RG ${style["stroke-width"]} w [] 0 d ${stroked} ET`);
    this.lines.push(`BT 0 Tr ${fill} rg ${shown} ET`);
  }
}

/** The bytes of a PDF with an SVG, and the characters that it could not write. */
export async function pdfOf(svg: string, title: string): Promise<Blob> {
  const root = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  const [x, y, w, h] = root.getAttribute("viewBox")!.split(" ").map(Number);
  const scale = Math.min(1, LARGEST / Math.max(w, h));
  const writer = new Writer();
  writer.lines.push(`${[scale, 0, 0, -scale, -x * scale, (y + h) * scale].map((value) => +value.toFixed(5)).join(" ")} cm`);
  writer.write(root, START);
  const packed = await new Response(new Blob([writer.lines.join("\n")]).stream().pipeThrough(new CompressionStream("deflate"))).arrayBuffer();
  const name = `<feff${[...title].flatMap((sign) => sign.split("")).map((unit) => unit.charCodeAt(0).toString(16).padStart(4, "0")).join("")}>`;
  const font = (base: string, more = "") => `<< /Type /Font /Subtype /Type1 /BaseFont /${base}${more} >>`;
  const states = writer.opacities.map((value, i) => `/O${i} << /ca ${round(value)} /CA ${round(value)} >>`).join(" ");
  let next = 9;
  const fonts = writer.outlines.fonts(next);
  const own = fonts.map(({ name, objects }) => { const number = next; next += objects.length; return `/${name} ${number} 0 R`; }).join(" ");
  const objects: BlobPart[][] = [
    ["<< /Type /Catalog /Pages 2 0 R >>"],
    ["<< /Type /Pages /Kids [3 0 R] /Count 1 >>"],
    [`<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${round(w * scale)} ${round(h * scale)}] /Contents 4 0 R /Resources << /Font << /F 5 0 R /S 6 0 R /Z 7 0 R ${own} >> /ExtGState << ${states} >> >> >>`],
    [`<< /Length ${packed.byteLength} /Filter /FlateDecode >>\nstream\n`, packed, "\nendstream"],
    [font("Helvetica", " /Encoding /WinAnsiEncoding")], [font("Symbol")], [font("ZapfDingbats")],
    [`<< /Title ${name} /Producer (Weft) >>`],
    ...fonts.flatMap((one) => one.objects.map((object) => [object])),
  ];
  const parts: BlobPart[] = ["%PDF-1.4\n"];
  const places: number[] = [];
  let length = 9;
  const add = (part: BlobPart) => { parts.push(part); length += new Blob([part]).size; };
  objects.forEach((object, i) => {
    places.push(length);
    for (const part of [`${i + 1} 0 obj\n`, ...object, "\nendobj\n"]) add(part);
  });
  const table = places.map((place) => `${String(place).padStart(10, "0")} 00000 n \n`).join("");
  parts.push(`xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R /Info 8 0 R >>\nstartxref\n${length}\n%%EOF\n`);
  return new Blob(parts, { type: "application/pdf" });
}
