// Write LICENSES.md: the packages that the bundle contains, with the texts of their licences.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

function packages(names, found = new Map()) {
  for (const name of names) {
    if (found.has(name)) continue;
    const folder = join("node_modules", name);
    const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    found.set(name, { folder, about });
    packages(Object.keys(about.dependencies ?? {}), found);
  }
  return found;
}

const own = JSON.parse(readFileSync("package.json", "utf8"));
const found = [...packages(Object.keys(own.dependencies))].sort(([a], [b]) => a.localeCompare(b));
const parts = found.map(([name, { folder, about }]) => {
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  const text = file ? readFileSync(join(folder, file), "utf8").trim().replace(/\r\n/g, "\n") : "";
  return `## ${name} ${about.version}: ${about.license}\n\n\`\`\`text\n${text}\n\`\`\`\n`;
});
writeFileSync("LICENSES.md", `# Packages in the bundle\n\n\`npm run licenses\` writes this file.\n\n${parts.join("\n")}`);
