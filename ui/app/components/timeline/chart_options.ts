// Options of uPlot for the timeline.

import uPlot from "uplot";
import type { ZoneName } from "../../theme/format";
import { axisText, type ChartMode, type ChartModel, type ExemplarDot, isolatedPoints } from "./chart_model";
import type { TimelineData } from "./series_data";

const DOT_RADIUS = 3;
const MIN_DRAG_PIXELS = 4;
const Y_AXIS_WIDTH = 76;
const X_AXIS_HEIGHT = 26;
/** Place for the right half of a time at the end of the axis, such as `Nov 30 08:00`. */
const LAST_LABEL_WIDTH = 36;
const AREA_OPACITY = 0.16;
const STACK_OPACITY = 0.55;
/** Free part of the plot above the largest value. */
const HEADROOM = 1.06;

export interface ChartOptionParams {
  readonly data: TimelineData;
  readonly mode: ChartMode;
  readonly model: ChartModel;
  readonly dots: readonly ExemplarDot[];
  readonly zone: ZoneName;
  readonly style: CSSStyleDeclaration;
  readonly onCursor: (place: number | undefined) => void;
  readonly onRange: (fromSeconds: number, untilSeconds: number) => void;
}

/** Number of colors of `chart_colors.css` before the one of the rest. */
export const SERIES_COLOR_COUNT = 10;

/** Returns the custom property with the color of a series. */
export function seriesColor(index: number, isOther: boolean): string {
  return isOther ? "--color-series-other" : `--color-series-${index % SERIES_COLOR_COUNT}`;
}

export function chartOptions(params: ChartOptionParams): Omit<uPlot.Options, "width" | "height"> {
  const { data, mode, model, zone, style } = params;
  const token = (name: string) => style.getPropertyValue(name).trim();
  const first = data.start;
  const last = data.times.at(-1) ?? 0;
  const isStacked = mode.isStacked && !data.isAverage;
  const grid = { stroke: token("--color-border"), width: 1 };
  const axis = {
    stroke: token("--color-text-muted"),
    font: `11px ${token("--font-text")}`,
    grid,
    ticks: { show: false },
  };
  return {
    legend: { show: false },
    padding: [6, LAST_LABEL_WIDTH, 0, 0],
    ...(zone === "utc" ? { tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") } : {}),
    scales: {
      x: { time: true, range: [first / 1000, last / 1000] },
      y: { range: (_plot, min, max) => valueRange(min, max) },
    },
    axes: [
      { ...axis, size: X_AXIS_HEIGHT, gap: 6, space: 90, values: TIME_TICKS },
      {
        ...axis,
        size: Y_AXIS_WIDTH,
        space: 26,
        values: (_plot, ticks) => ticks.map((tick) => axisText(tick, data, mode)),
      },
    ],
    series: [{}, ...model.visible.map((index) => seriesOptions(index, params, isStacked))],
    bands: isStacked ? model.visible.slice(1).map((_, place) => ({ series: [place + 2, place + 1] })) : [],
    cursor: {
      y: false,
      points: { size: 6 },
      drag: { x: true, y: false, setScale: false, dist: MIN_DRAG_PIXELS },
    },
    hooks: {
      setCursor: [(plot) => params.onCursor(plot.cursor.idx ?? undefined)],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width >= MIN_DRAG_PIXELS) {
            params.onRange(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
          }
        },
      ],
      draw: [(plot) => drawDots(plot, params, token)],
    },
  };
}

function valueRange(min: number | null, max: number | null): [number, number] {
  const top = max === null || max <= 0 ? 1 : max * HEADROOM;
  return [min === null || min >= 0 ? 0 : min * HEADROOM, top];
}

const TIME_TICKS: uPlot.Axis.Values = [
  [31_536_000, "{YYYY}", null, null, null, null, null, null, 1],
  [2_592_000, "{MMM} {YYYY}", null, null, null, null, null, null, 1],
  [86_400, "{MMM} {D}", null, null, null, null, null, null, 1],
  [3_600, "{HH}:{mm}", null, null, "{MMM} {D} {HH}:{mm}", null, null, null, 1],
  [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
];

function seriesOptions(index: number, params: ChartOptionParams, isStacked: boolean): uPlot.Series {
  const series = params.data.series[index];
  const color = params.style.getPropertyValue(seriesColor(index, series?.isOther === true)).trim();
  const isSingle = params.data.series.length === 1;
  const opacity = isStacked ? STACK_OPACITY : AREA_OPACITY;
  return {
    stroke: color,
    width: isStacked ? 1 : 1.5,
    ...(isStacked || isSingle ? { fill: `color-mix(in srgb, ${color} ${opacity * 100}%, transparent)` } : {}),
    spanGaps: false,
    points: {
      show: true,
      size: 5,
      fill: color,
      filter: (plot, place) => isolatedPoints((plot.data[place] ?? []) as (number | null)[]),
    },
  };
}

export interface DotPosition {
  readonly x: number;
  readonly y: number;
}

/** Returns the center of a dot, on the line of its series. */
export function dotPosition(
  plot: uPlot,
  { line, exemplar }: ExemplarDot,
  isCanvas: boolean,
): DotPosition | undefined {
  const height = plot.data[line + 1]?.[exemplar.place];
  if (height === null || height === undefined) return undefined;
  return {
    x: plot.valToPos(plot.data[0][exemplar.place] ?? 0, "x", isCanvas),
    y: plot.valToPos(height, "y", isCanvas),
  };
}

function drawDots(plot: uPlot, { dots, data, style }: ChartOptionParams, token: (name: string) => string) {
  const { ctx } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.lineWidth = 1.5 * ratio;
  ctx.fillStyle = token("--color-surface");
  for (const dot of dots) {
    const position = dotPosition(plot, dot, true);
    if (position === undefined) continue;
    const isOther = data.series[dot.series]?.isOther === true;
    ctx.strokeStyle = style.getPropertyValue(seriesColor(dot.series, isOther)).trim();
    ctx.beginPath();
    ctx.arc(position.x, position.y, DOT_RADIUS * ratio, 0, 2 * Math.PI);
    ctx.fill();
    ctx.stroke();
  }
  ctx.restore();
}
