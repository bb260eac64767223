// Colors, as graphs/draw/labels.py has them, and their counterparts on a dark ground.

export interface Palette {
  ground: string; ink: string; faint: string; dim: string; edge: string;
  frame: string; frameEdge: string; white: string; chosen: string; found: string;
  wrong: string; families: Record<string, string>; heat: [number[], number[]];
}

const LIGHT: Palette = {
  ground: "#ffffff", ink: "#22262b", faint: "#8a9099", dim: "#565c65", edge: "#4a4f57",
  frame: "#f6f7f8", frameEdge: "#b9bec6", white: "#ffffff", chosen: "#1f5fa8", found: "#d9480f",
  wrong: "#c92a2a",
  families: {
    attention: "#fde2ba", feed_forward: "#c3e6f5", embedding: "#f9dfe2", position: "#dcefdc",
    norm: "#f3f4c2", linear: "#dee0f1", recurrent: "#e6dbf0", convolution: "#d3ebe6",
    model: "#cfe3d4", loss: "#f7c9c0", noise: "#e3d9c6", softmax: "#cce7cf", other: "#eceef0",
  },
  heat: [[255, 247, 236], [215, 48, 31]],
};

const DARK: Palette = {
  ground: "#15181c", ink: "#e6e8eb", faint: "#7d858f", dim: "#aab1ba", edge: "#8b929b",
  frame: "#1d2126", frameEdge: "#444b54", white: "#22272d", chosen: "#6cb0ff", found: "#ff922b",
  wrong: "#ff6b6b",
  families: {
    attention: "#5c4522", feed_forward: "#1f4a5c", embedding: "#5a363c", position: "#2f4d33",
    norm: "#4b4c22", linear: "#363c62", recurrent: "#4a3860", convolution: "#234c46",
    model: "#2c4c38", loss: "#5f352c", noise: "#4c4230", softmax: "#29502f", other: "#31363d",
  },
  heat: [[38, 42, 48], [214, 69, 34]],
};

export const palette = (dark: boolean): Palette => (dark ? DARK : LIGHT);

/** The color of a share between 0 and 1. */
export function heatColor(colors: Palette, share: number): string {
  const [low, high] = colors.heat;
  const t = Math.sqrt(Math.max(0, Math.min(1, share)));
  return `rgb(${low.map((value, i) => Math.round(value + (high[i] - value) * t)).join(",")})`;
}
