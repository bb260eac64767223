// A line chart over the updates of a run.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Curve } from "./api";
import { short } from "./types";

export interface Line { name: string; kind: "train" | "valid" | "score" | "rate"; curve: Curve; dots?: boolean }

const LEFT = 50, RIGHT = 10, TOP = 8, BOTTOM = 20;

/** Round numbers between two ends, about as many as are wanted. */
export function ticksOf(low: number, high: number, wanted: number): number[] {
  const raw = (high - low) / wanted || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10);
  const found: number[] = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

const figure = (value: number): string => (value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : Math.abs(value) >= 10_000 ? short(value) : String(+value.toPrecision(4)));

export function Chart({ title, lines, at }: { title: ComponentChildren; lines: Line[]; at: number }) {
  const holder = useRef<HTMLDivElement>(null);
  const [[width, height], setSize] = useState([320, 180]);
  const [over, setOver] = useState<number | null>(null);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => setSize([Math.max(160, holder.current!.clientWidth), Math.max(90, holder.current!.clientHeight)]));
    watch.observe(holder.current!);
    return () => watch.disconnect();
  }, []);
  const shown = lines.filter((line) => line.curve[0].length);
  const xs = shown.flatMap((line) => line.curve[0]), ys = shown.flatMap((line) => line.curve[1]);
  const [x0, x1] = [Math.min(0, ...xs), Math.max(1, ...xs)];
  let [y0, y1] = [Math.min(...ys), Math.max(...ys)];
  if (!(y1 > y0)) { y0 -= Math.abs(y0) / 10 || 1; y1 += Math.abs(y1) / 10 || 1; }
  const x = (update: number) => LEFT + ((update - x0) / (x1 - x0)) * (width - LEFT - RIGHT);
  const y = (value: number) => height - BOTTOM - ((value - y0) / (y1 - y0)) * (height - TOP - BOTTOM);
  const closest = (line: Line): number => {
    const goal = x0 + (((over ?? 0) - LEFT) / (width - LEFT - RIGHT)) * (x1 - x0);
    return line.curve[0].reduce((best, update, i) => (Math.abs(update - goal) < Math.abs(line.curve[0][best] - goal) ? i : best), 0);
  };
  return (
    <figure class="chart">
      <figcaption><b>{title}</b> {shown.map((line) => {
        const i = over === null ? line.curve[0].length - 1 : closest(line);
        return <span key={line.name} class={line.kind}>{lines.length > 1 ? `${line.name} ` : ""}{figure(line.curve[1][i])} <small>at {short(line.curve[0][i])}</small></span>;
      })}</figcaption>
      <div ref={holder}>
        <svg width={width} height={height} role="img" aria-label={shown.map((line) => `${line.name}: ${figure(line.curve[1].at(-1)!)} at update ${line.curve[0].at(-1)}`).join("; ") || "no values"}
          onPointerMove={(event) => setOver(event.clientX - event.currentTarget.getBoundingClientRect().left)} onPointerLeave={() => setOver(null)}>
          {ticksOf(y0, y1, Math.max(2, height / 45)).map((tick) => <g key={tick}><line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} /><text x={LEFT - 6} y={y(tick) + 3.5} text-anchor="end">{figure(tick)}</text></g>)}
          {ticksOf(x0, x1, Math.max(2, width / 90)).map((tick) => <text key={tick} x={x(tick)} y={height - 5} text-anchor="middle">{short(tick)}</text>)}
          {at > 0 && at < x1 && <line class="here" x1={x(at)} x2={x(at)} y1={TOP} y2={height - BOTTOM}><title>this checkpoint: update {at}</title></line>}
          {shown.map((line) => (
            <g key={line.name} class={line.kind}>
              <path d={line.curve[0].map((update, i) => `${i ? "L" : "M"}${x(update).toFixed(1)} ${y(line.curve[1][i]).toFixed(1)}`).join("")} />
              {line.dots && line.curve[0].length < 100 && line.curve[0].map((update, i) => <circle key={update} cx={x(update)} cy={y(line.curve[1][i])} r={2.6} />)}
              {over !== null && <circle class="over" cx={x(line.curve[0][closest(line)])} cy={y(line.curve[1][closest(line)])} r={4} />}
            </g>
          ))}
          {!shown.length && <text x={width / 2} y={height / 2} text-anchor="middle">no values yet</text>}
        </svg>
      </div>
    </figure>
  );
}
