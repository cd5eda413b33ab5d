// Requests of a sandwich: the numbers of its function, and the graphs of callers and callees.

import type { GraphRequest, Query, SandwichRequest, Transform } from "../api/types";
import { queryOf } from "../url/query_of";
import type { ViewState } from "../url/view_state";

/** Largest number of transforms in a query of the server. */
const MAX_QUERY_TRANSFORMS = 32;
/** Transforms that the graph of callers adds to those of the view. The graph of callees adds one. */
const ADDED_TRANSFORMS = 2;

export interface SandwichRequests {
  readonly query: Query;
  readonly sandwich: SandwichRequest;
  readonly callers: GraphRequest;
  readonly callees: GraphRequest;
}

/** Returns the requests of the sandwich view, or undefined if it has no function or too many transforms. */
export function sandwichRequests(state: ViewState): SandwichRequests | undefined {
  const query = queryOf(state);
  const name = state.sandwichFunction;
  if (query === undefined || name === undefined || countExcessTransforms(state) > 0) return undefined;
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

/** Returns how many transforms of a view have to go before its sandwich is within the limit of the server. */
function countExcessTransforms({ transforms }: ViewState): number {
  return Math.max(0, transforms.length + ADDED_TRANSFORMS - MAX_QUERY_TRANSFORMS);
}

/** Explains why a view has too many transforms for a sandwich. Returns undefined if it has few enough. */
export function excessTransformsNotice(state: ViewState): string | undefined {
  const excess = countExcessTransforms(state);
  if (excess === 0) return undefined;
  return (
    `A sandwich adds ${ADDED_TRANSFORMS} transforms and the limit is ${MAX_QUERY_TRANSFORMS}, ` +
    `but this view has ${state.transforms.length}. Remove ${excess === 1 ? "one" : excess}.`
  );
}
