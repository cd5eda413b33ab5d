// Requests that graphs were loaded with. While a view loads, its graph is that of an older request.

import type { GraphRequest } from "../../api/types";
import type { Graph } from "../../graph/graph";

export interface GraphOrigin {
  readonly tenant: string;
  readonly request: GraphRequest;
}

const origins = new WeakMap<Graph, GraphOrigin>();

export function setGraphOrigin(graph: Graph, origin: GraphOrigin): void {
  origins.set(graph, origin);
}

/** Returns the request of a graph as it was loaded, without callees that were opened later. */
export function originOfGraph(graph: Graph): GraphOrigin | undefined {
  return origins.get(graph);
}
