// Requests that a view stands for.
import type { FrameMatch, GraphGroupBy, GraphRequest, Query, Transform } from "../api/types";
import { now } from "./clock";
import { isSlidingTime, parseFrom, parseUntil } from "./time";
import { DEFAULT_VIEW, type TransformState, type ViewState } from "./view_state";

/** Range of a view in milliseconds since 1970, both ends in it. Both are multiples of the step, except for the first start. */
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
const DAY_MS = 86_400_000;
/** Steps of a chart. The last one is for the part of a step by which a range grows when its start is rounded. */
const MAX_STEPS = 241;
/** Profilers send every 10 to 15 s, so shorter steps leave gaps. Only ranges of minutes have them. */
const USUAL_MIN_STEP_MS = 15_000;
const MAX_SHORT_STEPS = 21;
const MIN_RANGE_MS = 1_000;
/** First start of a range. The server reads 0 as no time, and has no profiles from before 1970. */
const FIRST_START_MS = 1;

/** Times of a view as they were chosen, in milliseconds since 1970. The first one is the earlier one. */
export function chosenTimesOf({ from, until }: Pick<ViewState, "from" | "until">): readonly [number, number] {
  const currentTime = now.value;
  const last = parseUntil(until, currentTime) ?? currentTime;
  const first =
    parseFrom(from, currentTime, last) ?? parseFrom(DEFAULT_VIEW.from, currentTime, last) ?? currentTime;
  const end = Math.max(first, last);
  return [Math.min(first, last, end - MIN_RANGE_MS), end];
}

/**
 * Returns the range of a view: the chosen times, rounded outwards to the step, so that refreshes and other readers send
 * equal requests and hit the result cache. The step of a rounded range is that of the chosen one, so links with fixed
 * times show the same. Reads the signal `now`. Times that cannot be parsed count as the default ones.
 */
export function timeRangeOf(state: Pick<ViewState, "from" | "until">): TimeRange {
  const [from, until] = chosenTimesOf(state);
  // The number of steps of a sliding range stays the same wherever `now` lies within a step.
  const isSliding = isSlidingTime(state.from) && isSlidingTime(state.until);
  const roundTo = (step: number): TimeRange => {
    const end = Math.max(Math.ceil(until / step) * step, step);
    const start = isSliding
      ? end - (Math.ceil((until - from) / step) + 1) * step
      : Math.floor(from / step) * step;
    return { start: Math.max(start, FIRST_START_MS), end, step };
  };
  const fits = ({ start, end, step }: TimeRange) =>
    (end - start) / step <= (step < USUAL_MIN_STEP_MS ? MAX_SHORT_STEPS : MAX_STEPS);
  for (const step of STEPS_MS) {
    const range = roundTo(step);
    if (fits(range)) return range;
  }
  let days = Math.ceil((until - from) / DAY_MS / MAX_STEPS);
  while (!fits(roundTo(days * DAY_MS))) days++;
  return roundTo(days * DAY_MS);
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
  const match: FrameMatch = pattern === undefined ? {} : isRegex ? { regex: pattern } : { name: pattern };
  return { [action]: match };
}

const GROUPINGS: ReadonlyMap<string, GraphGroupBy> = new Map(
  Object.entries<GraphGroupBy>({
    line: "GRAPH_GROUP_BY_LINE",
    file: "GRAPH_GROUP_BY_FILE",
    package: "GRAPH_GROUP_BY_PACKAGE",
    binary: "GRAPH_GROUP_BY_BINARY",
  }),
);

/** Returns the request for the graph of a view, or undefined while it has no profile type. */
export function graphRequestOf(state: ViewState): GraphRequest | undefined {
  const query = queryOf(state);
  if (query === undefined) return undefined;
  const grouping = GROUPINGS.get(state.frames);
  return {
    query,
    ...(state.inverted ? { invert: true } : {}),
    ...(grouping === undefined ? {} : { groupBy: grouping }),
    ...(state.frames.startsWith("label:") ? { groupByLabel: state.frames.slice("label:".length) } : {}),
  };
}
