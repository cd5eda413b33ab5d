// Timeline as columns of numbers for the chart, and its values as text.

import { formatRate, parseProfileType, rateUnit } from "../../theme/cost";
import { formatValue } from "../../theme/format";
import {
  seriesMax,
  seriesSum,
  stepStart,
  type TimelineData,
  type TimelineExemplar,
  type TimelineSeries,
} from "./series_data";

export interface ChartMode {
  readonly isStacked: boolean;
  readonly isRate: boolean;
  readonly profileType: string;
}

export interface ChartModel {
  /** Seconds since 1970. */
  readonly times: number[];
  /** Drawn heights, one list a visible series; cumulated from the first series on if the chart is stacked. */
  readonly heights: (number | null)[][];
  /** Indexes of the visible series. */
  readonly visible: readonly number[];
}

const NANOS_PER_UNIT: ReadonlyMap<string, number> = new Map(
  Object.entries({
    nanoseconds: 1,
    microseconds: 1e3,
    milliseconds: 1e6,
    seconds: 1e9,
  }),
);
const NANOS_PER_SECOND = 1e9;

/** Returns the length of a step in milliseconds. */
function stepLength(data: TimelineData, place: number): number {
  return (data.times[place] ?? 0) - stepStart(data, place);
}

/** Returns the factor from a value of a step to its height: seconds for times, and a rate if the mode says so. */
function heightFactor(data: TimelineData, mode: ChartMode, place: number): number {
  const nanos = NANOS_PER_UNIT.get(parseProfileType(mode.profileType).unit);
  const unitFactor = nanos === undefined ? 1 : nanos / NANOS_PER_SECOND;
  return data.isAverage || !mode.isRate ? unitFactor : unitFactor / (stepLength(data, place) / 1000);
}

/** Returns the columns of the chart. Averages do not add up, so they are never stacked. */
export function chartModel(data: TimelineData, mode: ChartMode, hidden: ReadonlySet<string>): ChartModel {
  const factors = data.times.map((_, place) => heightFactor(data, mode, place));
  const visible = data.series.flatMap((series, index) => (hidden.has(series.name) ? [] : [index]));
  const isStacked = mode.isStacked && !data.isAverage;
  const valueAt = (index: number, place: number) => data.series[index]?.values[place];
  const isGap = data.times.map((_, place) => visible.every((index) => valueAt(index, place) === undefined));
  const sums = data.times.map(() => 0n);
  const heightAt = (index: number, place: number) => {
    const value = valueAt(index, place);
    const factor = factors[place] ?? 1;
    if (!isStacked) return value === undefined ? null : Number(value) * factor;
    sums[place] = (sums[place] ?? 0n) + (value ?? 0n);
    return isGap[place] === true ? null : Number(sums[place]) * factor;
  };
  const heights = visible.map((index) => data.times.map((_, place) => heightAt(index, place)));
  return { times: data.times.map((time) => time / 1000), heights, visible };
}

/** Returns the indexes of values without a neighbor, which no line connects. */
export function isolatedPoints(heights: readonly (number | null | undefined)[]): number[] {
  const isPoint = (place: number) => heights[place] !== null && heights[place] !== undefined;
  return heights.flatMap((_, place) =>
    isPoint(place) && !isPoint(place - 1) && !isPoint(place + 1) ? [place] : [],
  );
}

/** Returns the value of a series in one step as text. */
export function pointText(
  series: TimelineSeries,
  place: number,
  data: TimelineData,
  mode: ChartMode,
): string {
  const value = series.values[place];
  if (value === undefined) return "–";
  const { unit } = parseProfileType(mode.profileType);
  if (data.isAverage || !mode.isRate) return formatValue(value, unit);
  return formatRate(value, stepLength(data, place), mode.profileType);
}

/** Returns the summary of a series: its rate or sum over the range, or the maximum of a gauge. */
export function summaryText(series: TimelineSeries, data: TimelineData, mode: ChartMode): string {
  const { unit } = parseProfileType(mode.profileType);
  if (data.isAverage) return `max ${formatValue(seriesMax(series), unit)}`;
  const sum = seriesSum(series);
  if (!mode.isRate) return formatValue(sum, unit);
  return formatRate(sum, (data.times.at(-1) ?? 0) - data.start, mode.profileType);
}

const AXIS_PREFIXES = ["", "k", "M", "G", "T", "P", "E"] as const;
const SMALL_TIME_UNITS = ["s", "ms", "µs", "ns"] as const;

/** Returns the text of a tick of the value axis. Ticks are round numbers. */
export function axisText(height: number, data: TimelineData, mode: ChartMode): string {
  const { unit } = parseProfileType(mode.profileType);
  const isTime = NANOS_PER_UNIT.get(unit) !== undefined;
  const isRate = !data.isAverage && mode.isRate;
  if (height === 0) return "0";
  if (isTime && isRate) return `${roundTick(height)} ${rateUnit(mode.profileType)}`;
  if (isTime && Math.abs(height) < 1) {
    const steps = Math.min(3, Math.ceil(-Math.log10(Math.abs(height)) / 3));
    return `${roundTick(height * 1000 ** steps)} ${SMALL_TIME_UNITS[steps]}`;
  }
  const steps = Math.min(6, Math.max(0, Math.floor(Math.log10(Math.abs(height)) / 3 + 1e-9)));
  const suffix = isTime ? "s" : unit === "bytes" ? "B" : "";
  const prefix = AXIS_PREFIXES[steps] ?? "";
  const separator = prefix === "" && suffix === "" ? "" : " ";
  return `${roundTick(height / 1000 ** steps)}${separator}${prefix}${suffix}${isRate ? "/s" : ""}`;
}

function roundTick(value: number): string {
  return String(Number(value.toPrecision(6)));
}

export interface ExemplarDot {
  readonly series: number;
  /** Place of the series among the visible ones. */
  readonly line: number;
  readonly exemplar: TimelineExemplar;
}

/** Returns the exemplars that have a dot: the largest of each run of points, so that dots do not overlap. */
export function exemplarDots(data: TimelineData, visible: readonly number[], maxDots: number): ExemplarDot[] {
  const run = Math.max(1, Math.ceil(data.times.length / Math.max(1, maxDots)));
  const largest = new Map<number, ExemplarDot>();
  for (const [line, series] of visible.entries()) {
    for (const exemplar of data.series[series]?.exemplars ?? []) {
      const bucket = Math.floor(exemplar.place / run);
      const best = largest.get(bucket);
      if (best === undefined || exemplar.value > best.exemplar.value)
        largest.set(bucket, { series, line, exemplar });
    }
  }
  return [...largest.values()];
}
