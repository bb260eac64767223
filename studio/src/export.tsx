// SVG and PNG of what is seen.
import { render } from "preact";
import { Drawn, type Looks } from "./draw";
import type { Rect } from "./types";

/** The SVG text of a part of a drawing. */
export function svgOf(looks: Looks, part: Rect): string {
  const root = document.createElement("div");
  const [x, y, w, h] = part;
  render(
    <svg xmlns="http://www.w3.org/2000/svg" width={w} height={h} viewBox={`${x} ${y} ${w} ${h}`}>
      <rect x={x} y={y} width={w} height={h} fill={looks.colors.ground} />
      <Drawn {...looks} sight={null} onFold={undefined} marks={{ ...looks.marks, chosen: "", found: null }} />
    </svg>,
    root,
  );
  const text = new XMLSerializer().serializeToString(root.firstElementChild!);
  render(null, root);
  return text;
}

export function save(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export async function pngOf(svg: string, width: number, height: number, factor = 2): Promise<Blob> {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const picture = new Image();
    await new Promise((done, failed) => {
      picture.onload = done;
      picture.onerror = failed;
      picture.src = url;
    });
    // Browsers refuse a canvas with more pixels.
    const scale = Math.min(factor, 12_000 / Math.max(width, height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.ceil(width * scale);
    canvas.height = Math.ceil(height * scale);
    canvas.getContext("2d")!.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("the picture is too large"))), "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}
