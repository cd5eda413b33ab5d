// Series of the timeline: the largest groups, the rest, and their values as integers.

import type { Exemplar, SelectSeriesRequest, Series } from "../../api/types";
import { isGauge, toInteger } from "../../theme/cost";
import type { TimeRange } from "../../url/query_of";

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
    start: String(Math.min(range.start + range.step, range.end)),
    end: String(range.end),
    step: range.step / 1000,
    aggregation: isGauge(profileType)
      ? "TIME_SERIES_AGGREGATION_TYPE_AVERAGE"
      : "TIME_SERIES_AGGREGATION_TYPE_SUM",
    exemplarType: "EXEMPLAR_TYPE_INDIVIDUAL",
    ...(isGrouped ? { groupBy: [query.groupBy], limit: String(MAX_TIMELINE_GROUPS) } : {}),
  };
}

/** Returns the times of all points of a range. */
export function timesOf({ start, end, step }: TimeRange): number[] {
  const count = Math.max(1, Math.floor((end - start) / step));
  const first = Math.min(start + step, end);
  return Array.from({ length: count }, (_, place) => first + place * step);
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

/** Returns the exact difference between all profiles and the shown groups, or undefined if nothing is left. */
export function otherSeries(
  all: TimelineSeries,
  groups: readonly TimelineSeries[],
): TimelineSeries | undefined {
  let isEmpty = true;
  const values = all.values.map((whole, place) => {
    if (whole === undefined) return undefined;
    const rest = groups.reduce((left, group) => left - (group.values[place] ?? 0n), whole);
    if (rest !== 0n) isEmpty = false;
    return rest;
  });
  return isEmpty ? undefined : { name: "other", isOther: true, values, exemplars: [] };
}

/**
 * Returns the selector of the profiles outside the shown groups. The average of the rest cannot be computed from the
 * averages of the groups, so it needs a query of its own.
 */
export function otherSelector(selector: string, label: string, groups: readonly string[]): string {
  const pattern = groups.map((value) => value.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|");
  return withMatcher(selector, label, "!~", pattern);
}

/** Returns the selector with a further matcher. */
export function withMatcher(selector: string, label: string, operator: string, value: string): string {
  const matcher = `${label}${operator}${JSON.stringify(value)}`;
  const end = selector.lastIndexOf("}");
  if (end < 0) return `{${matcher}}`;
  const before = selector.slice(0, end).trimEnd();
  const separator = before.endsWith("{") || before.endsWith(",") ? "" : ", ";
  return `${before}${separator}${matcher}}`;
}

/** Returns the sum of a series over all its points. */
export function seriesSum(series: TimelineSeries): bigint {
  return series.values.reduce<bigint>((sum, value) => sum + (value ?? 0n), 0n);
}

/** Returns the largest value of a series. */
export function seriesMax(series: TimelineSeries): bigint {
  return series.values.reduce<bigint>((max, value) => (value !== undefined && value > max ? value : max), 0n);
}
