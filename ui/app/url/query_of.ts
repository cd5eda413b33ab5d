// Requests that a view stands for.
import type { FrameMatch, GraphGroupBy, GraphRequest, Query, Transform } from "../api/types";
import { now } from "./clock";
import { parseTime } from "./time";
import { DEFAULT_VIEW, type TransformState, type ViewState } from "./view_state";

/** Range of a view in milliseconds since 1970, both ends in it. Its end is a multiple of the step. */
export interface TimeRange {
  readonly start: number;
  readonly end: number;
  /** Milliseconds between two points of a chart. */
  readonly step: number;
}

const STEPS_MS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 604_800,
  2_592_000,
].map((seconds) => seconds * 1_000);
const MAX_POINTS = 240;
/** Profilers send every 10 to 15 s, so shorter steps leave gaps. Ranges of minutes have at least some points. */
const USUAL_MIN_STEP_MS = 15_000;
const MIN_POINTS = 20;
const MIN_RANGE_MS = 1_000;

/** Returns a round step for charts of a duration. */
export function stepOf(durationMs: number, maxPoints: number = MAX_POINTS): number {
  const wanted = Math.max(durationMs / maxPoints, Math.min(USUAL_MIN_STEP_MS, durationMs / MIN_POINTS));
  return STEPS_MS.find((step) => step >= wanted) ?? Math.ceil(wanted / 86_400_000) * 86_400_000;
}

/**
 * Returns the range of a view. The end is rounded up to the step, so that refreshes and other readers send equal
 * requests and hit the result cache. Reads the signal `now`. Times that cannot be parsed count as the default ones.
 */
export function timeRangeOf(state: Pick<ViewState, "from" | "until">): TimeRange {
  const currentTime = now.value;
  const until = parseTime(state.until, currentTime) ?? currentTime;
  const from = parseTime(state.from, currentTime) ?? parseTime(DEFAULT_VIEW.from, currentTime) ?? currentTime;
  const duration = Math.max(Math.abs(until - from), MIN_RANGE_MS);
  const step = stepOf(duration);
  const end = Math.ceil(Math.max(until, from) / step) * step;
  return { start: Math.floor((end - duration) / step) * step, end, step };
}

/** Returns the query of a view, or undefined while it has no profile type. */
export function queryOf(state: ViewState): Query | undefined {
  if (state.profileType === "") return undefined;
  const { start, end } = timeRangeOf(state);
  return {
    profileType: state.profileType,
    selector: state.selector,
    start: String(start),
    end: String(end),
    ...listField("spanSelector", state.spanIds),
    ...listField("traceIdSelector", state.traceIds),
    ...listField("profileIdSelector", state.profileIds),
    ...(state.transforms.length === 0 ? {} : { transforms: state.transforms.map(transformMessage) }),
  };
}

function listField(name: string, items: readonly string[]): Record<string, readonly string[]> {
  return items.length === 0 ? {} : { [name]: items };
}

function transformMessage({ action, pattern, isRegex }: TransformState): Transform {
  const hasPattern = action !== "collapseRecursion" || pattern !== "";
  const match: FrameMatch = !hasPattern ? {} : isRegex ? { regex: pattern } : { name: pattern };
  return { [action]: match };
}

const GROUPINGS: Readonly<Record<string, GraphGroupBy>> = {
  line: "GRAPH_GROUP_BY_LINE",
  file: "GRAPH_GROUP_BY_FILE",
  package: "GRAPH_GROUP_BY_PACKAGE",
  binary: "GRAPH_GROUP_BY_BINARY",
};

/** Returns the request for the graph of a view, or undefined while it has no profile type. */
export function graphRequestOf(state: ViewState): GraphRequest | undefined {
  const query = queryOf(state);
  if (query === undefined) return undefined;
  const grouping = GROUPINGS[state.frames];
  return {
    query,
    ...(state.inverted ? { invert: true } : {}),
    ...(grouping === undefined ? {} : { groupBy: grouping }),
    ...(state.frames.startsWith("label:") ? { groupByLabel: state.frames.slice("label:".length) } : {}),
  };
}
