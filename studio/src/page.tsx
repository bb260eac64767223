// The page of `weft draw -o x.html`: a drawing without a server.
import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Scene } from "./types";
import { Viewer } from "./viewer";

function Page({ scene }: { scene: Scene }) {
  const known = useMemo(() => new Set(Object.keys(scene.states)), [scene]);
  const [key, setKey] = useState([...known][0]);
  const [dark, setDark] = useState(matchMedia("(prefers-color-scheme: dark)").matches);
  const [chosen, setChosen] = useState("");
  useEffect(() => { document.documentElement.dataset.theme = dark ? "dark" : "light"; }, [dark]);
  return <Viewer scene={scene} stateKey={key} onKey={setKey} known={known} dark={dark} onDark={setDark} chosen={chosen} onChoose={setChosen} />;
}

const scene = JSON.parse(document.getElementById("scene")!.textContent!) as Scene;
document.title = scene.name;
render(<Page scene={scene} />, document.getElementById("root")!);
