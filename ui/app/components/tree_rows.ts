// Visible rows of the tree view.

import type { Graph } from "../graph/graph";
import { nameOfNode } from "../graph/path";

/** Half of a surrogate pair, which no decoded name contains. */
const KEY_SEPARATOR = "\ud800";
/** Share of the whole down to which the heaviest callees are expanded at first. */
const FIRST_EXPANDED_SHARE = 0.5;
const MAX_FIRST_DEPTH = 40;

export interface TreeRow {
  readonly node: number;
  /** Level from 1, the root. */
  readonly level: number;
  /** Names from the root to the node. Nodes move in the columns when callees are added; keys stay. */
  readonly key: string;
  readonly isExpandable: boolean;
  readonly isExpanded: boolean;
  /** Row that stands for the callees of the node that the server left out. */
  readonly isHiddenRest: boolean;
}

export function keyOfPath(path: readonly string[]): string {
  return path.map((name) => KEY_SEPARATOR + name).join("");
}

export function pathOfKey(key: string): string[] {
  return key.split(KEY_SEPARATOR).slice(1);
}

/** Returns the rows of all expanded nodes, in preorder. */
export function treeRows(graph: Graph, expanded: ReadonlySet<string>): TreeRow[] {
  const rows: TreeRow[] = [];
  const pending: TreeRow[] = [rowOf(graph, 0, 1, "", expanded)];
  for (let row = pending.pop(); row !== undefined; row = pending.pop()) {
    rows.push(row);
    if (!row.isExpanded || row.isHiddenRest) continue;
    const below: TreeRow[] = [];
    const end = graph.end[row.node] ?? 0;
    for (let callee = row.node + 1; callee < end; callee = graph.end[callee] ?? end) {
      const key = row.key + KEY_SEPARATOR + nameOfNode(graph, callee);
      below.push(rowOf(graph, callee, row.level + 1, key, expanded));
    }
    if (graph.truncated[row.node] !== 0) {
      below.push({
        ...row,
        level: row.level + 1,
        isExpandable: false,
        isExpanded: false,
        isHiddenRest: true,
      });
    }
    pending.push(...below.reverse());
  }
  return rows;
}

function rowOf(
  graph: Graph,
  node: number,
  level: number,
  key: string,
  expanded: ReadonlySet<string>,
): TreeRow {
  const isExpandable = graph.callees[node] !== 0 || graph.truncated[node] !== 0;
  return {
    node,
    level,
    key,
    isExpandable,
    isExpanded: isExpandable && expanded.has(key),
    isHiddenRest: false,
  };
}

/** Returns the keys of the nodes that are expanded at first: the root, and the heaviest callees down to half of it. */
export function firstExpanded(graph: Graph): Set<string> {
  const keys = new Set([""]);
  const least = Math.abs(graph.total[0] ?? 0) * FIRST_EXPANDED_SHARE;
  let key = "";
  for (let node = 1, level = 1; node < graph.nodeCount && level < MAX_FIRST_DEPTH; node++, level++) {
    if (Math.abs(graph.total[node] ?? 0) < least) break;
    key += KEY_SEPARATOR + nameOfNode(graph, node);
    keys.add(key);
    if (graph.callees[node] === 0) break;
  }
  return keys;
}

/** Returns the keys of all callers of a path, which must be expanded for its row to be visible. */
export function keysAbove(path: readonly string[]): string[] {
  return path.map((_, length) => keyOfPath(path.slice(0, length)));
}
