// Requests of a sandwich: the numbers of its function, and the graphs of callers and callees.

import type { GraphRequest, Query, SandwichRequest, Transform } from "../api/types";
import { queryOf } from "../url/query_of";
import type { ViewState } from "../url/view_state";

export interface SandwichRequests {
  readonly query: Query;
  readonly sandwich: SandwichRequest;
  readonly callers: GraphRequest;
  readonly callees: GraphRequest;
}

/** Returns the requests of the sandwich view, or undefined if it has no function. */
export function sandwichRequests(state: ViewState): SandwichRequests | undefined {
  const query = queryOf(state);
  const name = state.sandwichFunction;
  if (query === undefined || name === "") return undefined;
  const withTransforms = (...added: readonly Transform[]): Query => ({
    ...query,
    transforms: [...(query.transforms ?? []), ...added],
  });
  return {
    query,
    // The trees of the response lack packages, so they have one node.
    sandwich: { query, function: name, maxNodes: "1" },
    callers: {
      // An inversion visits each frame of all stacks, and the server limits their number.
      query: withTransforms({ focus: { name } }, { collapseBelow: { name } }),
      path: [name],
      invert: true,
    },
    callees: { query: withTransforms({ showFrom: { name } }) },
  };
}
