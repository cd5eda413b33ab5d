// Series of the timeline: the largest groups, the rest, and their values as integers.

import type { Exemplar, SelectSeriesRequest, Series } from "../../api/types";
import { isGauge, toInteger } from "../../theme/cost";
import type { TimeRange } from "../../url/query_of";
import { escapeRegex, formatSelector, parseSelector } from "../../url/selector";

/** Number of groups that have a line of their own. */
export const MAX_TIMELINE_GROUPS = 10;

export interface TimelineQuery {
  readonly profileType: string;
  readonly selector: string;
  readonly groupBy: string;
  readonly range: TimeRange;
}

export interface TimelineExemplar {
  readonly profileId: string;
  readonly timestamp: number;
  readonly value: bigint;
  readonly labels: string;
  /** Index of the point that the profile belongs to. */
  readonly place: number;
}

export interface TimelineSeries {
  /** Value of the grouping label, `other` for the rest, or empty without grouping. */
  readonly name: string;
  readonly isOther: boolean;
  /** Sums of each step, or averages of a gauge. Undefined where no profile is. */
  readonly values: readonly (bigint | undefined)[];
  readonly exemplars: readonly TimelineExemplar[];
}

export interface TimelineData {
  /** End of each step in milliseconds. */
  readonly times: readonly number[];
  /** Start of the range. The first step covers the time from here to the first end. */
  readonly start: number;
  /** Length of the steps after the first one. */
  readonly stepMs: number;
  readonly isAverage: boolean;
  readonly series: readonly TimelineSeries[];
}

/** Returns the request for the series. Points are at the ends of steps, so that all of them lie within the range. */
export function seriesRequest(query: TimelineQuery, isGrouped: boolean): SelectSeriesRequest {
  const { range, profileType } = query;
  return {
    profileTypeID: profileType,
    labelSelector: query.selector,
    start: String(timesOf(range)[0] ?? range.end),
    end: String(range.end),
    step: range.step / 1000,
    aggregation: isGauge(profileType)
      ? "TIME_SERIES_AGGREGATION_TYPE_AVERAGE"
      : "TIME_SERIES_AGGREGATION_TYPE_SUM",
    exemplarType: "EXEMPLAR_TYPE_INDIVIDUAL",
    ...(isGrouped ? { groupBy: [query.groupBy], limit: String(MAX_TIMELINE_GROUPS) } : {}),
  };
}

/** Returns the times of all points of a range. The last one is at its end. */
export function timesOf({ start, end, step }: TimeRange): number[] {
  const count = Math.max(1, Math.ceil((end - start) / step));
  return Array.from({ length: count }, (_, place) => end - (count - 1 - place) * step);
}

/** Returns the start of a step. */
export function stepStart({ times, start }: TimelineData, place: number): number {
  return place === 0 ? start : (times[place - 1] ?? start);
}

/** Longest step in steps of the range, however seldom profiles are. */
const MAX_STEP_FACTOR = 60;

/**
 * Returns by how much the step should grow so that most points have a profile: the usual distance of two points.
 * If possible, it divides the number of points, so that the first step begins with the range.
 */
export function stepFactor(values: readonly (bigint | undefined)[]): number {
  const places = values.flatMap((value, place) => (value === undefined ? [] : [place]));
  const gaps = places.slice(1).map((place, index) => place - (places[index] ?? 0));
  const usual = gaps.sort((left, right) => left - right)[Math.floor(gaps.length * 0.9)] ?? 1;
  const least = Math.min(usual, MAX_STEP_FACTOR);
  for (let factor = least; factor < 2 * least; factor++) {
    if (values.length % factor === 0) return factor;
  }
  return least;
}

/** Returns a series with a value at each time. */
export function alignSeries(series: Series | undefined, name: string, range: TimeRange): TimelineSeries {
  const times = timesOf(range);
  const first = times[0] ?? range.end;
  const values: (bigint | undefined)[] = times.map(() => undefined);
  const exemplars: TimelineExemplar[] = [];
  for (const point of series?.points ?? []) {
    const place = Math.round((Number(point.timestamp ?? 0) - first) / range.step);
    if (place < 0 || place >= values.length) continue;
    values[place] = toInteger(point.value ?? 0);
    for (const exemplar of point.exemplars ?? []) exemplars.push(exemplarAt(exemplar, place));
  }
  return { name, isOther: false, values, exemplars };
}

/**
 * Returns sums of steps that are longer by a factor. They end at the end of the range, and the first one also has the
 * steps that are left. So the sum over all steps is that of the range.
 */
export function mergeSteps(data: TimelineData, factor: number): TimelineData {
  const count = Math.max(1, Math.floor(data.times.length / factor));
  const left = data.times.length - count * factor;
  const placeOf = (place: number) => Math.max(0, Math.floor((place - left) / factor));
  const merge = (series: TimelineSeries): TimelineSeries => {
    const values: (bigint | undefined)[] = Array.from({ length: count });
    for (const [place, value] of series.values.entries()) {
      const merged = placeOf(place);
      if (value !== undefined) values[merged] = (values[merged] ?? 0n) + value;
    }
    const exemplars = series.exemplars.map((exemplar) => ({ ...exemplar, place: placeOf(exemplar.place) }));
    return { ...series, values, exemplars };
  };
  return {
    ...data,
    times: data.times.filter((_, place) => place >= left && (place - left + 1) % factor === 0),
    stepMs: data.stepMs * factor,
    series: data.series.map(merge),
  };
}

function exemplarAt(exemplar: Exemplar, place: number): TimelineExemplar {
  const labels = (exemplar.labels ?? []).filter(({ name }) => name !== undefined && !name.startsWith("__"));
  return {
    profileId: exemplar.profileId ?? "",
    timestamp: Number(exemplar.timestamp ?? 0),
    value: BigInt(exemplar.value ?? 0),
    labels: labels.map(({ name, value }) => `${name}=${value ?? ""}`).join(", "),
    place,
  };
}

/**
 * Returns the difference between the sums of all profiles and of the shown groups, or undefined if nothing is left.
 * Fewer groups than the maximum are all groups. A rest below zero comes from profiles that arrived between the calls,
 * or from rounding, and counts as zero.
 */
export function otherSeries(
  all: TimelineSeries,
  groups: readonly TimelineSeries[],
): TimelineSeries | undefined {
  if (groups.length < MAX_TIMELINE_GROUPS) return undefined;
  let isEmpty = true;
  const values = all.values.map((whole, place) => {
    if (whole === undefined) return undefined;
    const rest = groups.reduce((left, group) => left - (group.values[place] ?? 0n), whole);
    if (rest > 0n) isEmpty = false;
    return rest < 0n ? 0n : rest;
  });
  return isEmpty ? undefined : { name: "other", isOther: true, values, exemplars: [] };
}

/**
 * Returns the selector of the profiles outside the shown groups. The average of the rest cannot be computed from the
 * averages of the groups, so it needs a query of its own.
 */
export function otherSelector(selector: string, label: string, groups: readonly string[]): string {
  const value = groups.map(escapeRegex).join("|");
  return formatSelector([...(parseSelector(selector) ?? []), { name: label, operator: "!~", value }]);
}

/** Returns the sum of a series over all its points. */
export function seriesSum(series: TimelineSeries): bigint {
  return series.values.reduce<bigint>((sum, value) => sum + (value ?? 0n), 0n);
}

/** Returns the largest value of a series. */
export function seriesMax(series: TimelineSeries): bigint {
  return series.values.reduce<bigint>((max, value) => (value !== undefined && value > max ? value : max), 0n);
}
