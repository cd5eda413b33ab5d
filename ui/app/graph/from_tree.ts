// Converts a tree of the API's JSON, as `Sandwich` returns it, to the columns of a graph.

import type { Graph } from "./graph";
import { greatestCommonDivisor } from "./merge_subtree";
import { MAX_EXACT_SUM, roundColumn, shapeOfPreorder } from "./shape";
import { GraphFormatError } from "./wire";

/** `athanor.v1.Tree` in JSON: values are texts, default values are absent. */
export interface JsonTree {
  readonly names?: readonly string[];
  readonly nodes?: readonly JsonTreeNode[];
}

export interface JsonTreeNode {
  readonly name?: number;
  readonly parent?: number;
  readonly self?: string;
  readonly total?: string;
  readonly other?: boolean;
}

/** Facts about the query that the tree itself does not state. */
export interface TreeOrigin {
  readonly queryTotal: bigint;
  readonly unit: string;
  readonly period?: bigint;
  readonly resolution?: string;
}

/**
 * Converts a tree. A node that stands for what was left out becomes truncated weight of its caller. Values of gauges
 * are averages in the tree already, so the graph takes them as they are.
 */
export function graphFromTree(tree: JsonTree, origin: TreeOrigin): Graph {
  const names = tree.names?.length ? tree.names : [""];
  const nodes = tree.nodes?.length ? tree.nodes : [{}];
  const order = preorderOf(nodes, names);
  const nodeCount = order.length;
  const callees = new Uint32Array(nodeCount);
  const name = new Uint32Array(nodeCount);
  const self = new BigInt64Array(nodeCount);
  const total = new BigInt64Array(nodeCount);
  const truncated = new BigInt64Array(nodeCount);
  for (let index = 0; index < nodeCount; index++) {
    const entry = order[index] as OrderedNode;
    callees[index] = entry.calleeCount;
    name[index] = entry.node.name ?? 0;
    self[index] = BigInt(entry.node.self ?? "0");
    total[index] = BigInt(entry.node.total ?? "0");
    truncated[index] = entry.truncated;
  }
  const divisor = commonDivisor([self, total, truncated]);
  const exact = {
    self: divide(self, divisor),
    total: divide(total, divisor),
    truncated: divide(truncated, divisor),
  };
  const isExact = exact.total.some((value) => value > MAX_EXACT_SUM || value < -MAX_EXACT_SUM);
  return {
    ...graphOfOrigin(origin, names),
    nodeCount,
    callees,
    name,
    ...shapeOfPreorder(callees),
    self: roundColumn(exact.self),
    total: roundColumn(exact.total),
    truncated: roundColumn(exact.truncated),
    exact: isExact ? exact : undefined,
    divisor,
    fullNodes: BigInt(nodes.length),
    rootCallees: BigInt(callees[0] as number),
  };
}

type OriginColumns = Omit<
  Graph,
  | "nodeCount"
  | "callees"
  | "name"
  | "parent"
  | "depth"
  | "end"
  | "self"
  | "total"
  | "truncated"
  | "exact"
  | "divisor"
  | "fullNodes"
  | "rootCallees"
>;

function graphOfOrigin(origin: TreeOrigin, names: readonly string[]): OriginColumns {
  return {
    names,
    nameFile: new Uint32Array(names.length),
    nameBinary: new Uint32Array(names.length),
    namePackage: new Uint32Array(names.length),
    nameLine: new Uint32Array(names.length),
    files: [""],
    binaries: [""],
    packages: [""],
    queryTotal: origin.queryTotal,
    unit: origin.unit,
    period: origin.period ?? 0n,
    profiles: 0n,
    warnings: [],
    averagedProfiles: 0n,
    resolution: origin.resolution ?? "",
  };
}

interface OrderedNode {
  readonly node: JsonTreeNode;
  readonly calleeCount: number;
  readonly truncated: bigint;
}

/** Orders nodes as a graph has them: callers first, siblings by decreasing total, then by name. */
function preorderOf(nodes: readonly JsonTreeNode[], names: readonly string[]): OrderedNode[] {
  const calleesOf: number[][] = nodes.map(() => []);
  const truncated = new Array<bigint>(nodes.length).fill(0n);
  for (let index = 0; index < nodes.length; index++) {
    const node = nodes[index] as JsonTreeNode;
    if ((node.name ?? 0) >= names.length)
      throw new GraphFormatError(`name ${node.name} of node ${index} is unknown`);
    if (index === 0) continue;
    const parent = node.parent ?? 0;
    // Callers come first, so a parent behind its callee would be a cycle.
    if (parent >= index) throw new GraphFormatError(`node ${index} comes before its caller ${parent}`);
    if (node.other === true) truncated[parent] = (truncated[parent] as bigint) + BigInt(node.total ?? "0");
    else calleesOf[parent]?.push(index);
  }
  const totalOf = (index: number) => BigInt(nodes[index]?.total ?? "0");
  const nameOf = (index: number) => names[nodes[index]?.name ?? 0] as string;
  const compare = (first: number, second: number) => {
    const difference = totalOf(second) - totalOf(first);
    if (difference !== 0n) return difference > 0n ? 1 : -1;
    return nameOf(first) < nameOf(second) ? -1 : 1;
  };
  const ordered: OrderedNode[] = [];
  const pending = [0];
  for (let index = pending.pop(); index !== undefined; index = pending.pop()) {
    const callees = (calleesOf[index] as number[]).sort(compare);
    const node = nodes[index] as JsonTreeNode;
    ordered.push({ node, calleeCount: callees.length, truncated: truncated[index] as bigint });
    for (let position = callees.length - 1; position >= 0; position--)
      pending.push(callees[position] as number);
  }
  return ordered;
}

function commonDivisor(columns: readonly BigInt64Array[]): bigint {
  let divisor = 0n;
  for (const column of columns) {
    for (const value of column) {
      divisor = greatestCommonDivisor(divisor, value);
      if (divisor === 1n) return 1n;
    }
  }
  return divisor === 0n ? 1n : divisor;
}

function divide(column: BigInt64Array, divisor: bigint): BigInt64Array {
  return column.map((value) => value / divisor);
}
