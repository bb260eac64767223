// Bundle the page of a drawing and the studio into graphs/draw/page/.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

await build({
  absWorkingDir: fileURLToPath(new URL(".", import.meta.url)),
  entryPoints: { page: "src/page.tsx", studio: "src/studio.tsx", style: "src/style.css" },
  outdir: "../graphs/draw/page",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
});
