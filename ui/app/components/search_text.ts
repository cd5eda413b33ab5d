// Filter of a search, and its result as text.

import type { FunctionFilter, FunctionsResponse } from "../api/types";
import { formatExact, formatPercent } from "../theme/format";
import type { FrameGrouping, ViewState } from "../url/view_state";

/** Returns the filter of a search: part of a name, or `/regex/`. */
export function filterOfSearch(search: string): FunctionFilter | undefined {
  if (search === "") return undefined;
  const isRegex = search.length > 2 && search.startsWith("/") && search.endsWith("/");
  return isRegex ? { regex: search.slice(1, -1) } : { substring: search };
}

/** Returns what the server found, as text: `37 functions, 12.4 %`. */
export function describeMatches(response: FunctionsResponse): string {
  const count = BigInt(response.count ?? "0");
  if (count === 0n) return "no function";
  const share = formatPercent(BigInt(response.matchedTotal ?? "0"), BigInt(response.total ?? "0"));
  return `${count === 1n ? "1 function" : `${formatExact(count, "")} functions`}, ${share}`;
}

const FRAME_NOUNS: ReadonlyMap<FrameGrouping, string> = new Map([
  ["line", "lines"],
  ["file", "files"],
  ["package", "packages"],
  ["binary", "binaries"],
]);

/** States what a graph highlights, if its frames are not the functions that the server counts. */
export function describeHighlight({ views, frames }: Pick<ViewState, "views" | "frames">): string {
  const noun = FRAME_NOUNS.get(frames);
  const drawsGraph = views.some((name) => name === "flame" || name === "icicle" || name === "tree");
  return noun === undefined || !drawsGraph ? "" : `the graph highlights ${noun}`;
}
