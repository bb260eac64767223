// Params of one node or of several: what is set is one edit.
import { useState } from "preact/hooks";
import type { Acts } from "./inspector";
import { valueOf } from "./dialogs";
import type { Box, Scene } from "./types";

const textOf = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

interface Shared { id: string; paths: string[]; name: string; values: unknown[]; help?: { doc: string; choices: unknown[] }; acts: Acts }

/** A param of some nodes. Where they differ, nothing is shown until a value for all is given. */
export function Param({ id, paths, name, values, help, acts }: Shared) {
  const texts = [...new Set(values.map(textOf))], mixed = texts.length > 1;
  const first = mixed ? "" : texts[0];
  const [given, setGiven] = useState(first);
  const choices = (help?.choices ?? []).map(textOf);
  const set = (value: unknown) => acts.edit({ what: "set", paths, key: `params.${name}`, value });
  const title = [help?.doc, mixed && `mixed: ${texts.join(", ")}`].filter(Boolean).join("\n");
  if (choices.length && texts.every((one) => choices.includes(one))) {
    return (
      <label class="param" title={title}>{name}
        <select data-param={`${id} ${name}`} value={first} onChange={(event) => {
          const list = event.currentTarget, index = list.selectedIndex - (mixed ? 1 : 0);
          if (index >= 0) void set(help!.choices[index]).then((done) => { if (!done) list.value = first; });
        }}>{mixed && <option value="">mixed</option>}{choices.map((one) => <option key={one}>{one}</option>)}</select>
      </label>
    );
  }
  const submit = () => {
    if (given === first) return;
    const done = given.trim() === "" ? acts.edit({ what: "unset", paths, key: `params.${name}` }) : set(valueOf(given));
    void done.then((made) => { if (!made) setGiven(first); });
  };
  return (
    <form class="param" title={title} onSubmit={(event) => { event.preventDefault(); submit(); }}>
      <label>{name} <input type="text" data-param={`${id} ${name}`} value={given} placeholder={mixed ? "mixed" : undefined} onInput={(event) => setGiven(event.currentTarget.value)} /></label>
      {given !== first && <button>Set</button>}
    </form>
  );
}

/** What several nodes have in common and can be set for all of them. */
export function Several({ boxes, scene, acts, editable }: { boxes: Box[]; scene: Scene; acts: Acts; editable: boolean }) {
  const paths = [...new Set(boxes.map((box) => box.fact!))];
  const slotsOf = (path: string) => Object.keys(scene.facts).filter((one) => one === path || one.startsWith(`${path}/`)).map((one) => one.slice(path.length));
  const slots = slotsOf(paths[0]).filter((slot) => paths.every((path) => scene.facts[path + slot]));
  return (
    <div class="card">
      <h2>{paths.length} nodes</h2>
      <ul class="picked">{paths.map((path) => <li key={path} class="path">{path} <small>{scene.facts[path].use}</small></li>)}</ul>
      {editable && <div class="acts">{slots.map((slot) => {
        const facts = paths.map((path) => scene.facts[path + slot]);
        const names = Object.keys(facts[0].params).filter((name) => facts.every((fact) => name in fact.params));
        const all = [...new Set(facts.map((fact) => fact.use))];
        return names.length > 0 && (
          <section key={slot}><h3>{slot.slice(1)} {all.join(", ")}</h3>
            {names.map((name) => {
              const values = facts.map((fact) => fact.params[name]), helps = all.map((use) => scene.params[use]?.[name]);
              const shared = helps[0] && { ...helps[0], choices: helps[0].choices.filter((one) => helps.every((help) => help?.choices.some((other) => textOf(other) === textOf(one)))) };
              return <Param key={`${paths} ${slot} ${name} ${JSON.stringify(values)}`} id={`several${slot}`} paths={paths.map((path) => path + slot)} name={name} values={values} help={shared} acts={acts} />;
            })}
          </section>
        );
      })}</div>}
    </div>
  );
}
