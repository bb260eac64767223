// What there is to say of one node.
import type { JSX } from "preact";
import { short, UNITS, type Box, type Fact, type Scene } from "./types";

export function Card({ box, scene, pinned, children }: { box: Box; scene: Scene; pinned?: boolean; children?: JSX.Element | null }) {
  const fact = box.fact ? scene.facts[box.fact] : undefined;
  if (!fact) {
    return <div class="card"><h2>{box.title.join(" ")}</h2>{box.tip && <code>{box.tip}</code>}</div>;
  }
  const inner = Object.keys(scene.facts).filter((path) => path.startsWith(`${box.fact}/`) && !path.slice(box.fact!.length + 1).includes("/"));
  return (
    <div class="card">
      <h2>{fact.title || fact.name} <small>{[fact.use, ...inner.map((path) => scene.facts[path].use)].join(" + ")}</small></h2>
      <p class="path">{box.fact}</p>
      {fact.doc && <p>{fact.doc}</p>}
      <Numbers fact={fact} scene={scene} />
      {children}
      {pinned && !children && <Table title="params" rows={written(fact.params)} />}
      {!pinned && [box.fact!, ...inner].map((path) => scene.facts[path].shown && <p key={path} class="path">{scene.facts[path].shown}</p>)}
      <Table title="inputs" rows={fact.inputs} />
      <Table title="outputs" rows={fact.outputs} />
      {pinned && <Table title="weights" rows={Object.fromEntries(Object.entries(fact.weights).map(([name, shape]) => [name, shape.join(" × ") || "one number"]))} />}
      {pinned && inner.map((path) => (
        <section key={path} class="slot">
          <h3>{path.slice(box.fact!.length + 1)}: {scene.facts[path].title} <small>{scene.facts[path].use}</small></h3>
          {!children && <Table title="" rows={written(scene.facts[path].params)} />}
          {<Table title="weights" rows={Object.fromEntries(Object.entries(scene.facts[path].weights).map(([name, shape]) => [name, shape.join(" × ") || "one number"]))} />}
        </section>
      ))}
      {fact.written && <p class="path">written in {fact.written.file.split("/").pop()}<br />{fact.written.pointer}</p>}
    </div>
  );
}

const written = (params: Record<string, unknown>) => Object.fromEntries(Object.entries(params).filter(([, value]) => value !== null));

function Numbers({ fact, scene }: { fact: Fact; scene: Scene }) {
  const share = (value: number, total: number) => (total && value ? ` (${((100 * value) / total).toFixed(1)}%)` : "");
  return (
    <table class="numbers"><tbody>
      <tr><th>parameters</th><td>{fact.parameters.toLocaleString("en")}{share(fact.parameters - fact.tied, scene.parameters)}{fact.tied ? `, ${short(fact.tied)} of them tied` : ""}</td></tr>
      {fact.repeat && <tr><th>copies</th><td>{fact.repeat} of {short(fact.each)} each</td></tr>}
      <tr><th>FLOPs</th><td>{short(fact.flops, "")}{share(fact.flops, scene.flops)}</td></tr>
      <tr><th>memory of outputs</th><td>{short(fact.memory, UNITS.memory)}{share(fact.memory, scene.memory)}</td></tr>
      {fact.time !== undefined && <tr><th>time</th><td>{(fact.time * 1e3).toFixed(2)} ms</td></tr>}
      {fact.shares && <tr><th>shares</th><td>the weights of {fact.shares}</td></tr>}
    </tbody></table>
  );
}

function Table({ title, rows }: { title: string; rows: Record<string, unknown> }) {
  const entries = Object.entries(rows);
  if (!entries.length) return null;
  return (
    <table>{title && <caption>{title}</caption>}<tbody>
      {entries.map(([name, value]) => <tr key={name}><th>{name}</th><td>{typeof value === "string" ? value : JSON.stringify(value)}</td></tr>)}
    </tbody></table>
  );
}
