// Query of the sandwich view.

import { call } from "../api/client";
import { type LiveQuery, liveQuery } from "../api/live_query";
import { frameNameOf, nameFirstLevel } from "../graph/first_level";
import { view } from "../url/store";
import { loadGraph } from "./flame/graph_loader";
import { setGraphOrigin } from "./flame/graph_origin";
import { type FittedParts, loadFittedParts, type SandwichParts } from "./sandwich_parts";
import { type SandwichRequests, sandwichRequests } from "./sandwich_requests";
import { shows } from "./view_queries";

export interface SandwichResult extends FittedParts {
  readonly tenant: string;
  readonly requests: SandwichRequests;
}

async function loadParts(
  tenant: string,
  requests: SandwichRequests,
  signal: AbortSignal,
): Promise<SandwichParts> {
  const [reply, callers, callees] = await Promise.all([
    call("athanor.v1.ExploreService/Sandwich", requests.sandwich, { signal, tenant }),
    loadGraph({ tenant, request: requests.callers }, signal),
    loadGraph({ tenant, request: requests.callees }, signal),
  ]);
  const warnings = new Set([...reply.warnings, ...callers.warnings, ...callees.warnings]);
  return { response: reply.message, callers, callees, warnings: [...warnings] };
}

async function loadSandwich(
  tenant: string,
  requests: SandwichRequests,
  signal: AbortSignal,
): Promise<SandwichResult> {
  const parts = await loadFittedParts(() => loadParts(tenant, requests, signal));
  const { callers, callees } = parts;
  const isFound = callees.nodeCount > 1;
  const namedCallers = isFound ? nameFirstLevel(callers, frameNameOf(callees, 1)) : callers;
  for (const graph of [namedCallers, callees])
    setGraphOrigin(graph, { tenant, request: { query: requests.query } });
  return { ...parts, callers: namedCallers, tenant, requests };
}

export const sandwichQuery: LiveQuery<SandwichResult> = liveQuery(
  () => {
    const state = view.value;
    const requests = shows(state, "sandwich") ? sandwichRequests(state) : undefined;
    return requests === undefined ? undefined : { tenant: state.tenant, requests };
  },
  ({ tenant, requests }, signal) => loadSandwich(tenant, requests, signal),
);
