// What is known of a checkpoint besides its drawing: the curves of its run, and its attention.
import { useEffect, useState } from "preact/hooks";
import { Attention } from "./attention";
import { api, type Curve, type Curves } from "./api";
import { Chart } from "./chart";
import { said } from "./dialogs";
import type { Box, Scene } from "./types";

/** Time between two looks at the curves, in milliseconds. */
const PAUSE = 5000;

export function Run({ scene, box, dark }: { scene: Scene; box: Box | undefined; dark: boolean }) {
  const [tab, setTab] = useState<"curves" | "attention">("curves");
  return (
    <section class="run" aria-label="checkpoint">
      <div class="tabs" role="tablist">
        <button role="tab" aria-selected={tab === "curves"} onClick={() => setTab("curves")}>Curves</button>
        <button role="tab" aria-selected={tab === "attention"} onClick={() => setTab("attention")}>Attention</button>
      </div>
      {tab === "curves" ? <Panel /> : <Attention scene={scene} box={box} dark={dark} />}
    </section>
  );
}

function Panel() {
  const [found, setFound] = useState<Curves | null>(null);
  const [wrong, setWrong] = useState("");
  const [metric, setMetric] = useState("");
  const [other, setOther] = useState("rate");
  useEffect(() => {
    const ask = () => { if (!document.hidden) api.curves().then((curves) => { setFound(curves); setWrong(""); }, (error) => setWrong(said(error))); };
    ask();
    const timer = setInterval(ask, PAUSE);
    return () => clearInterval(timer);
  }, []);
  if (wrong) return <p class="wrong">{wrong}</p>;
  if (!found) return <p class="note">Reading the history…</p>;
  const metrics = Object.keys(found.valid), numbers = Object.keys(found.train);
  if (!metrics.length && !numbers.length) return <p class="note">This checkpoint has no history.</p>;
  const first = found.valid[found.best] && found.best !== "loss" ? found.best : metrics.find((name) => !/loss|nll/.test(name)) ?? metrics[0] ?? "";
  const chosen = found.valid[metric] ? metric : first;
  const of = (some: Record<string, Curve>, name: string): Curve => some[name] ?? [[], []];
  const choice = (label: string, value: string, names: string[], set: (name: string) => void) => (
    <select aria-label={label} value={value} onChange={(event) => set(event.currentTarget.value)}>{names.map((one) => <option key={one} value={one}>{nameOf(one)}</option>)}</select>
  );
  return (
    <div class="charts">
      <Chart title="loss" at={found.update} lines={[{ name: "training", kind: "train", curve: of(found.train, "loss") }, { name: "validation", kind: "valid", curve: of(found.valid, "loss"), dots: true }]} />
      {chosen && <Chart title={choice("validation metric", chosen, metrics, setMetric)} at={found.update} lines={[{ name: "validation", kind: "score", curve: of(found.valid, chosen), dots: true }]} />}
      {numbers.length > 0 && <Chart title={choice("number of training", other, numbers, setOther)} at={found.update} lines={[{ name: nameOf(other), kind: "rate", curve: of(found.train, other) }]} />}
    </div>
  );
}

const nameOf = (name: string): string => (name === "rate" ? "learning rate" : name.replace(/_/g, " "));
