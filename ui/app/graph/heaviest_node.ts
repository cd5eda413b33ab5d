// Nodes of a function in a graph.

import type { Graph } from "./graph";
import { pathOfNode } from "./path";

/** Returns the path of the heaviest node with a name, or undefined if the graph shows none. */
export function heaviestPath(graph: Graph, name: string): string[] | undefined {
  const index = graph.names.indexOf(name);
  if (index < 0) return undefined;
  let heaviest = -1;
  for (let node = 1; node < graph.nodeCount; node++) {
    if (graph.name[node] !== index) continue;
    const total = Math.abs(graph.total[node] ?? 0);
    if (heaviest < 0 || total > Math.abs(graph.total[heaviest] ?? 0)) heaviest = node;
  }
  return heaviest < 0 ? undefined : pathOfNode(graph, heaviest);
}
