// What can be changed of the selected node.
import { useEffect, useState } from "preact/hooks";
import { api, type Port } from "./api";
import { Param } from "./params";
import type { Box, Scene } from "./types";

export interface Acts {
  edit: (edit: Record<string, unknown>) => Promise<boolean>;
  rename: (path: string, name: string) => Promise<boolean>;
  menu: (path: string) => void;
  palette: (path: string, ports: string[], after: boolean) => void;
  code: (path: string) => void;
}

export function Inspector({ box, scene, text, acts, editable }: { box: Box; scene: Scene; text: string; acts: Acts; editable: boolean }) {
  const path = box.fact;
  const fact = path ? scene.facts[path] : undefined;
  const [wires, setWires] = useState<Port[]>([]);
  const ports = Object.keys(fact?.inputs ?? {});
  useEffect(() => {
    let asked = true;
    setWires([]);
    if (path && editable && !path.includes("/")) api.wires(text, path).then((found) => { if (asked) setWires(found.ports); }, () => {});
    return () => { asked = false; };
  }, [path, text, editable]);
  if (!path || !fact) return null;
  if (!editable) return <div class="acts"><button onClick={() => acts.code(path)}>Code</button></div>;
  const inner = Object.keys(scene.facts).filter((one) => one.startsWith(`${path}/`));
  const isBlock = fact.use.includes("@");
  const weights = [path, ...inner].flatMap((one) => Object.keys(scene.facts[one].weights).map((name) => [one, name] as const));
  const outer = scene.foldable[path] ? path : Object.keys(scene.foldable).filter((one) => path.startsWith(`${one}.`)).sort((a, b) => b.length - a.length)[0];
  return (
    <div class="acts">
      <h3>Change</h3>
      {isBlock && <button class="main" data-act="swap" onClick={() => acts.menu(inner[0] && fact.slots.includes("f") ? `${path}/f` : path)}>Swap {inner[0] && fact.slots.includes("f") ? scene.facts[`${path}/f`]?.use.split("@")[0] : fact.use.split("@")[0]}…</button>}
      {isBlock && fact.slots.includes("f") && <button onClick={() => acts.menu(path)}>Swap {fact.use.split("@")[0]}…</button>}
      {!path.includes("/") && ports.length > 0 && <button onClick={() => acts.palette(path, ports, false)}>Insert before…</button>}
      {!path.includes("/") && <button onClick={() => acts.palette(path, Object.keys(fact.outputs), true)}>Insert after…</button>}
      {!path.includes("/") && isBlock && ports.length > 0 && <button onClick={() => void acts.edit({ what: "remove", path })}>Remove</button>}
      <button onClick={() => acts.code(path)}>Code</button>
      {!/[/]|\.\d[\d,-]*$/.test(path) && <Name key={path} path={path} acts={acts} />}
      {outer && scene.foldable[outer].repeat !== undefined && <Repeat key={outer} path={outer} count={scene.foldable[outer].repeat} acts={acts} />}
      {wires.length > 0 && <section><h3>Wires</h3>{wires.map((one) => <Wire key={one.port} path={path} one={one} acts={acts} />)}</section>}
      {[path, ...inner].map((one) => (
        <section key={one}>
          {Object.keys(scene.facts[one].params).length > 0 && <h3>{scene.facts[one].use}</h3>}
          {Object.entries(scene.facts[one].params).map(([name, value]) => <Param key={`${one} ${name} ${JSON.stringify(value)}`} id={one} paths={[one]} name={name} values={[value]} help={scene.params[scene.facts[one].use]?.[name]} acts={acts} />)}
          {scene.facts[one].slots.filter((slot) => !scene.facts[`${one}/${slot}`]).map((slot) => (
            <button key={slot} class="slot-add" data-slot={`${one}/${slot}`} onClick={() => acts.menu(`${one}/${slot}`)}>+ {slot}</button>
          ))}
        </section>
      ))}
      {weights.length > 0 && <Ties path={path} weights={weights} scene={scene} acts={acts} />}
    </div>
  );
}

/** A port: the value that it reads, and those that it could read. */
function Wire({ path, one: { port, optional, now, values }, acts }: { path: string; one: Port; acts: Acts }) {
  const all = now === null || values.includes(now) ? values : [now, ...values];
  return (
    <label class="param">{port}
      <select data-wire={`${path} ${port}`} value={now ?? ""} disabled={!all.length} onChange={(event) => {
        const list = event.currentTarget;
        void acts.edit({ what: "wire", path, port, value: list.value || null }).then((done) => { if (!done) list.value = now ?? ""; });
      }}>
        {(optional || now === null) && <option value="">{all.length ? "not wired" : "no value fits"}</option>}
        {all.map((value) => <option key={value}>{value}</option>)}
      </select>
    </label>
  );
}

function Repeat({ path, count, acts }: { path: string; count: number | null; acts: Acts }) {
  const [given, setGiven] = useState(String(count ?? 1));
  return (
    <form class="param" onSubmit={(event) => { event.preventDefault(); void acts.edit({ what: "repeat", path, count: Number(given) }); }}>
      <label>copies of {path} <input type="number" min="1" max="10000" value={given} onInput={(event) => setGiven(event.currentTarget.value)} /></label><button>Set</button>
    </form>
  );
}

/** The name of the node, which its wires, ties and patches follow. */
function Name({ path, acts }: { path: string; acts: Acts }) {
  const first = path.slice(path.lastIndexOf(".") + 1);
  const [given, setGiven] = useState(first);
  return (
    <form class="param" onSubmit={(event) => { event.preventDefault(); if (given !== first) void acts.rename(path, given).then((done) => { if (!done) setGiven(first); }); }}>
      <label>name <input type="text" data-act="name" value={given} onInput={(event) => setGiven(event.currentTarget.value)} /></label>
      {given !== first && <button>Rename</button>}
    </form>
  );
}

/** The weights that can be tied to one of this node: those with the same shape. */
function Ties({ path, weights, scene, acts }: { path: string; weights: (readonly [string, string])[]; scene: Scene; acts: Acts }) {
  const shape = (one: string, name: string) => scene.facts[one].weights[name].join("×");
  const nameOf = (one: string, name: string) => `${one.replace(/\//g, ".")}.${name}`;
  const tied = scene.ties.filter((group) => group.some(([one]) => one === path || one.startsWith(`${path}/`) || one.startsWith(`${path}.`)));
  const choices = weights.filter(([one]) => !one.includes("*")).flatMap(([one, name]) => Object.keys(scene.facts)
    .filter((other) => other !== one && !other.includes("*"))
    .flatMap((other) => Object.keys(scene.facts[other].weights).filter((second) => {
      const [a, b] = [shape(one, name), shape(other, second)];
      return a === b && !tied.some((group) => group.some(([, weight]) => weight === nameOf(other, second)));
    }).map((second) => [nameOf(one, name), nameOf(other, second)] as const)));
  if (!choices.length && !tied.length) return null;
  return (
    <section><h3>Ties</h3>
      {tied.map((group) => <p key={String(group)} class="path">{group.map(([, weight]) => weight).join(" = ")}</p>)}
      {choices.length > 0 && <label class="param">tie <select value="" data-act="tie" onChange={(event) => { const pair = choices[Number(event.currentTarget.value)]; if (pair) void acts.edit({ what: "tie", weights: [...pair] }); }}>
        <option value="">…</option>{choices.slice(0, 100).map(([a, b], i) => <option key={`${a} ${b}`} value={i}>{a} = {b}</option>)}
      </select></label>}
    </section>
  );
}
