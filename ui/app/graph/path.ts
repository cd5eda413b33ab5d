// Paths of frame names: of a node, and back to a node.

import type { Graph } from "./graph";

/** Returns the names from the first frame below the root to the node. The root has the empty path. */
export function pathOfNode(graph: Graph, node: number): string[] {
  const path: string[] = [];
  for (let current = node; current > 0; current = graph.parent[current] as number) {
    path.push(nameOfNode(graph, current));
  }
  return copyTexts(path.reverse());
}

/**
 * Copies texts. A name is a part of the text of all names, which it keeps in memory as long as it lives. Paths outlive
 * their graph: in the selection and in the history of zooms.
 */
export function copyTexts<Texts>(texts: Texts): Texts {
  return JSON.parse(JSON.stringify(texts)) as Texts;
}

export function nameOfNode(graph: Graph, node: number): string {
  return graph.names[graph.name[node] as number] as string;
}

/** Node of a path. `matched` counts the names that were found: fewer than the path has if `node` is only an ancestor. */
export interface PathMatch {
  readonly node: number;
  readonly matched: number;
}

/** Finds the node of a path, or its nearest existing ancestor. */
export function findPath(graph: Graph, path: readonly string[]): PathMatch {
  let node = 0;
  for (let matched = 0; matched < path.length; matched++) {
    const callee = findCallee(graph, node, path[matched] as string);
    if (callee === undefined) return { node, matched };
    node = callee;
  }
  return { node, matched: path.length };
}

function findCallee(graph: Graph, node: number, name: string): number | undefined {
  const end = graph.end[node] as number;
  for (let callee = node + 1; callee < end; callee = graph.end[callee] as number) {
    if (nameOfNode(graph, callee) === name) return callee;
  }
  return undefined;
}

/** Nodes around a node, as the arrow keys reach them. -1 where there is none. */
export interface NodeNeighbors {
  readonly caller: number;
  readonly heaviestCallee: number;
  readonly previousSibling: number;
  readonly nextSibling: number;
}

/** Returns the caller, the heaviest callee and the siblings of a node. */
export function neighborsOfNode(graph: Graph, node: number): NodeNeighbors {
  const caller = graph.parent[node] as number;
  const heaviestCallee = graph.callees[node] === 0 ? -1 : node + 1;
  if (caller < 0) return { caller, heaviestCallee, previousSibling: -1, nextSibling: -1 };
  let previousSibling = -1;
  for (let sibling = caller + 1; sibling < node; sibling = graph.end[sibling] as number) {
    previousSibling = sibling;
  }
  const after = graph.end[node] as number;
  const nextSibling = after < (graph.end[caller] as number) ? after : -1;
  return { caller, heaviestCallee, previousSibling, nextSibling };
}
