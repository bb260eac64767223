// Bundle the page of a drawing and the studio into graphs/draw/page/.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const options = {
  absWorkingDir: fileURLToPath(new URL(".", import.meta.url)),
  outdir: "../graphs/draw/page",
  bundle: true,
  minify: true,
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
};
await build({ ...options, format: "iife", entryPoints: { page: "src/page.tsx", style: "src/style.css" } });
// The editor is most of the script: the studio loads it when the drawing is on the screen.
await build({
  ...options,
  format: "esm",
  splitting: true,
  entryPoints: { studio: "src/studio.tsx", "studio-editor": "src/editor.ts" },
  chunkNames: "studio-shared",
});
