// Rows of the fleet, made of three responses: points of the range, totals of two periods, and series.

import type { LabelPair, Series, SeriesResponse } from "../api/types";
import { toInteger } from "../theme/cost";
import { formatAge } from "../theme/format";
import type { TimeRange } from "../url/query_of";

/** Maximum number of points of a sparkline. */
export const MAX_SPARKLINE_POINTS = 60;

/** Label that identifies a service. */
export const SERVICE_LABEL = "service_name";

export interface FleetRow {
  /** Service, or value of the grouping label. Empty for profiles without the label. */
  readonly name: string;
  /** Value at each step of the range. NaN where no profile is. */
  readonly points: Float64Array;
  /** Sum of the range, or its average for a gauge; absent without profiles of the type. */
  readonly value: bigint | undefined;
  readonly previous: bigint | undefined;
  readonly types: readonly string[];
  readonly services: readonly string[];
  /** End of the last step with a profile, in milliseconds. */
  readonly lastSeen: number | undefined;
}

export interface FleetResponses {
  readonly points: readonly Series[];
  /** Two points for each row: the period before the range ends at `start`, the range ends at `end`. */
  readonly totals: readonly Series[];
  readonly series: SeriesResponse;
}

interface RowDraft {
  points: Float64Array;
  value: bigint | undefined;
  previous: bigint | undefined;
  readonly types: Set<string>;
  readonly services: Set<string>;
  lastSeen: number | undefined;
}

function labelOf(labels: readonly LabelPair[] | undefined, name: string): string {
  return labels?.find((label) => label.name === name)?.value ?? "";
}

/** Returns the number of points of a range. The last one is at its end. */
export function pointCount({ start, end, step }: TimeRange): number {
  return Math.max(1, Math.ceil((end - start) / step));
}

/** Returns the time of the first point. */
export function firstPoint(range: TimeRange): number {
  return range.end - (pointCount(range) - 1) * range.step;
}

/** Returns the range with a step for at most 60 points. */
export function sparklineRange({ start, end, step }: TimeRange): TimeRange {
  const factor = Math.ceil((end - start) / step / MAX_SPARKLINE_POINTS);
  return { start, end, step: step * Math.max(1, factor) };
}

/** Returns a row for each value of the label. */
export function fleetRows(label: string, range: TimeRange, responses: FleetResponses): FleetRow[] {
  const drafts = new Map<string, RowDraft>();
  const draftOf = (name: string): RowDraft => {
    let draft = drafts.get(name);
    if (draft === undefined) {
      const points = new Float64Array(pointCount(range)).fill(Number.NaN);
      draft = {
        points,
        value: undefined,
        previous: undefined,
        types: new Set(),
        services: new Set(),
        lastSeen: undefined,
      };
      drafts.set(name, draft);
    }
    return draft;
  };
  for (const { labels } of responses.series.labelsSet ?? []) {
    const draft = draftOf(labelOf(labels, label));
    const type = labelOf(labels, "__profile_type__");
    const service = labelOf(labels, SERVICE_LABEL);
    if (type !== "") draft.types.add(type);
    if (service !== "") draft.services.add(service);
  }
  for (const series of responses.points) addPoints(draftOf(labelOf(series.labels, label)), series, range);
  for (const series of responses.totals) addTotals(draftOf(labelOf(series.labels, label)), series, range);
  return [...drafts].map(([name, draft]) => ({
    ...draft,
    name,
    types: [...draft.types].sort(),
    services: [...draft.services].sort(),
  }));
}

function addPoints(draft: RowDraft, series: Series, range: TimeRange) {
  const first = firstPoint(range);
  for (const point of series.points ?? []) {
    const timestamp = Number(point.timestamp ?? 0);
    const place = Math.round((timestamp - first) / range.step);
    if (place >= 0 && place < draft.points.length) draft.points[place] = point.value ?? 0;
    draft.lastSeen = Math.max(draft.lastSeen ?? timestamp, timestamp);
  }
}

function addTotals(draft: RowDraft, series: Series, { start }: TimeRange) {
  for (const point of series.points ?? []) {
    const value = toInteger(point.value ?? 0);
    if (Number(point.timestamp ?? 0) <= start) draft.previous = value;
    else draft.value = value;
  }
}

/** Returns the sum of all rows, of which each row's share is. */
export function fleetTotal(rows: readonly FleetRow[]): bigint {
  return rows.reduce((sum, row) => sum + (row.value ?? 0n), 0n);
}

/** Returns the rows whose name or type contains the text, in any letter case. */
export function filterRows(rows: readonly FleetRow[], filter: string): readonly FleetRow[] {
  const wanted = filter.trim().toLowerCase();
  if (wanted === "") return rows;
  const contains = (text: string) => text.toLowerCase().includes(wanted);
  return rows.filter((row) => contains(row.name) || row.types.some(contains) || row.services.some(contains));
}

/** Returns rows in order. The largest comes first unless reversed; names begin with the first letter. */
export function sortRows(
  rows: readonly FleetRow[],
  column: string,
  isReversed: boolean,
): readonly FleetRow[] {
  const sorted = [...rows].sort(
    (left, right) => compareRows(column, left, right) || compareNames(left, right),
  );
  return isReversed ? sorted.reverse() : sorted;
}

function compareNames(left: FleetRow, right: FleetRow): number {
  return left.name < right.name ? -1 : left.name > right.name ? 1 : 0;
}

function compareRows(column: string, left: FleetRow, right: FleetRow): number {
  switch (column) {
    case "name":
      return compareNames(left, right);
    case "change":
      return compareChange(right, left);
    case "types":
      return right.types.length - left.types.length;
    case "services":
      return right.services.length - left.services.length;
    case "seen":
      return (right.lastSeen ?? 0) - (left.lastSeen ?? 0);
    default:
      return compareIntegers(right.value ?? -1n, left.value ?? -1n);
  }
}

function compareIntegers(left: bigint, right: bigint): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Compares the factors of two changes without division. Rows without a value are the least. */
function compareChange(left: FleetRow, right: FleetRow): number {
  if (left.value === undefined || right.value === undefined) {
    return Number(left.value !== undefined) - Number(right.value !== undefined);
  }
  return compareIntegers(left.value * (right.previous ?? 0n), right.value * (left.previous ?? 0n));
}

/** Returns the time from the last profile to the current time. It is no more exact than a step of the trend. */
export function lastSeenText(lastSeen: number, step: number, currentTime: number): string {
  const age = currentTime - lastSeen;
  // The last step of a range may end after the current time.
  if (age < -step) return `in ${formatAge(-age)}`;
  return age <= step ? `< ${formatAge(step)} ago` : `${formatAge(age)} ago`;
}
