// Queries of the Explore page. Two views side by side share them.

import { call } from "../api/client";
import { type LiveQuery, liveQuery } from "../api/live_query";
import type { GraphRequest, Query, SandwichRequest, SandwichResponse, Transform } from "../api/types";
import { frameNameOf, nameFirstLevel } from "../graph/first_level";
import type { Graph } from "../graph/graph";
import { graphRequestOf, queryOf } from "../url/query_of";
import { view } from "../url/store";
import type { ViewName, ViewState } from "../url/view_state";
import { loadGraph } from "./flame/graph_loader";
import { type GraphOrigin, setGraphOrigin } from "./flame/graph_origin";
import { functionsRequest } from "./function_rows";
import { type FunctionTable, loadFunctionTable, type TenantRequest } from "./function_table";

function shows(state: ViewState, ...names: readonly ViewName[]): boolean {
  return state.page === "explore" && state.views.some((name) => names.includes(name));
}

/** Graph of the flame, icicle and tree views. */
export const graphQuery: LiveQuery<Graph> = liveQuery(
  () => {
    const state = view.value;
    const request = shows(state, "flame", "icicle", "tree") ? graphRequestOf(state) : undefined;
    return request === undefined ? undefined : { tenant: state.tenant, request };
  },
  (origin: GraphOrigin, signal) => loadGraph(origin, signal),
);

/** Functions of the table view, and of the list that a sandwich without a function shows. */
export const functionQuery: LiveQuery<FunctionTable> = liveQuery(
  () => {
    const state = view.value;
    const isShown = shows(state, "table") || (shows(state, "sandwich") && state.sandwichFunction === "");
    const request = isShown ? functionsRequest(state) : undefined;
    return request === undefined ? undefined : { tenant: state.tenant, request };
  },
  (request: TenantRequest, signal) => loadFunctionTable(request, signal),
);

/** Requests of a sandwich: its numbers from all stacks, and its two graphs. */
export interface SandwichRequests {
  readonly query: Query;
  readonly sandwich: SandwichRequest;
  readonly callers: GraphRequest;
  readonly callees: GraphRequest;
}

export interface SandwichResult {
  readonly tenant: string;
  readonly requests: SandwichRequests;
  readonly response: SandwichResponse;
  readonly callers: Graph;
  readonly callees: Graph;
  readonly warnings: readonly string[];
}

/** Returns the requests of the sandwich view, or undefined without a function. */
export function sandwichRequests(state: ViewState): SandwichRequests | undefined {
  const query = queryOf(state);
  const name = state.sandwichFunction;
  if (query === undefined || name === "") return undefined;
  const withTransform = (transform: Transform): Query => ({
    ...query,
    transforms: [...(query.transforms ?? []), transform],
  });
  return {
    query,
    // The trees of the response lack packages, so they are cut short.
    sandwich: { query, function: name, maxNodes: "1" },
    // Stacks that end with the function, upside down: below the function are its callers.
    callers: {
      ...{ query: withTransform({ collapseBelow: { name } }), path: [name], invert: true },
    },
    callees: { query: withTransform({ showFrom: { name } }) },
  };
}

async function loadSandwich(
  tenant: string,
  requests: SandwichRequests,
  signal: AbortSignal,
): Promise<SandwichResult> {
  const [{ message, warnings }, callers, callees] = await Promise.all([
    call("athanor.v1.ExploreService/Sandwich", requests.sandwich, { signal, tenant }),
    loadGraph({ tenant, request: requests.callers }, signal),
    loadGraph({ tenant, request: requests.callees }, signal),
  ]);
  // Shares refer to the whole query. The graph of callees has only stacks with the function.
  const { queryTotal } = callers;
  const isFound = callees.nodeCount > 1;
  const result = {
    callers: isFound ? nameFirstLevel(callers, frameNameOf(callees, 1)) : callers,
    callees: { ...callees, queryTotal },
  };
  for (const graph of Object.values(result))
    setGraphOrigin(graph, { tenant, request: { query: requests.query } });
  return {
    ...{ ...result, tenant, requests, response: message },
    warnings: [...new Set([...warnings, ...callers.warnings, ...callees.warnings])],
  };
}

export const sandwichQuery: LiveQuery<SandwichResult> = liveQuery(
  () => {
    const state = view.value;
    const requests = shows(state, "sandwich") ? sandwichRequests(state) : undefined;
    return requests === undefined ? undefined : { tenant: state.tenant, requests };
  },
  ({ tenant, requests }, signal) => loadSandwich(tenant, requests, signal),
);
