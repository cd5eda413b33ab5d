// Queries of the Explore page for graphs and functions. Two views side by side share them.

import { type LiveQuery, liveQuery } from "../api/live_query";
import type { Graph } from "../graph/graph";
import { graphRequestOf } from "../url/query_of";
import { view } from "../url/store";
import type { ViewName, ViewState } from "../url/view_state";
import { loadGraph } from "./flame/graph_loader";
import type { GraphOrigin } from "./flame/graph_origin";
import { functionsRequest } from "./function_rows";
import { type FunctionTable, loadFunctionTable, type TenantRequest } from "./function_table";

/** Returns whether the Explore page shows a view of the names. */
export function shows(state: ViewState, ...names: readonly ViewName[]): boolean {
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
    const isShown =
      shows(state, "table") || (shows(state, "sandwich") && state.sandwichFunction === undefined);
    const request = isShown ? functionsRequest(state) : undefined;
    return request === undefined ? undefined : { tenant: state.tenant, request };
  },
  (request: TenantRequest, signal) => loadFunctionTable(request, signal),
);
