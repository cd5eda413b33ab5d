// Queries of the Explore page. Two views side by side share them.

import { call } from "../api/client";
import { type LiveQuery, liveQuery } from "../api/live_query";
import type { SandwichRequest, SandwichResponse } from "../api/types";
import type { Graph } from "../graph/graph";
import { graphRequestOf, queryOf } from "../url/query_of";
import { view } from "../url/store";
import type { ViewName, ViewState } from "../url/view_state";
import { loadGraph } from "./flame/graph_loader";
import type { GraphOrigin } from "./flame/graph_origin";
import { functionsRequest } from "./function_rows";
import { type FunctionTable, loadFunctionTable, type TenantRequest } from "./function_table";

/** Maximum number of callers, and of callees, of a sandwich. */
export const MAX_SANDWICH_NODES = 20_000;

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

export interface SandwichResult {
  readonly tenant: string;
  readonly request: SandwichRequest;
  readonly response: SandwichResponse;
  readonly warnings: readonly string[];
}

/** Returns the request of the sandwich view, or undefined without a function. */
export function sandwichRequest(state: ViewState): SandwichRequest | undefined {
  const query = queryOf(state);
  if (query === undefined || state.sandwichFunction === "") return undefined;
  return { query, function: state.sandwichFunction, maxNodes: String(MAX_SANDWICH_NODES) };
}

export const sandwichQuery: LiveQuery<SandwichResult> = liveQuery(
  () => {
    const state = view.value;
    const request = shows(state, "sandwich") ? sandwichRequest(state) : undefined;
    return request === undefined ? undefined : { tenant: state.tenant, request };
  },
  async ({ tenant, request }, signal) => {
    const { message, warnings } = await call("athanor.v1.ExploreService/Sandwich", request, {
      signal,
      tenant,
    });
    return { tenant, request, response: message, warnings };
  },
);
