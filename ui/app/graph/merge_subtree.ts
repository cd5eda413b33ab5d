// Replaces the truncated weight of a node by callees that were fetched later.

import type { ExactColumns, Graph } from "./graph";
import { MAX_EXACT_SUM, roundColumn } from "./shape";

/**
 * Appends the callees of `subtree`, the graph of `node` without the callees that are shown already, behind those.
 * They take the place of truncated weight, so that no other box moves. The total of the node stays, unless the new
 * callees weigh more than what was truncated: then the node and its callers grow.
 */
export function mergeSubtree(graph: Graph, node: number, subtree: Graph): Graph {
  const position = graph.end[node] as number;
  const added = subtree.nodeCount - 1;
  const names = mergeNames(graph, subtree);
  const insertion: Insertion = { graph, node, position, added };
  return {
    ...graph,
    ...shapeColumns(insertion, subtree, names.indexes),
    ...valueColumns(insertion, subtree),
    ...names.columns,
    nodeCount: graph.nodeCount + added,
    warnings: [...new Set([...graph.warnings, ...subtree.warnings])],
  };
}

interface Insertion {
  readonly graph: Graph;
  readonly node: number;
  /** Index of the first new node. */
  readonly position: number;
  readonly added: number;
}

type ShapeColumns = Pick<Graph, "callees" | "name" | "parent" | "depth" | "end">;

function shapeColumns(insertion: Insertion, subtree: Graph, nameIndexes: Uint32Array): ShapeColumns {
  const { graph, node, position, added } = insertion;
  const count = graph.nodeCount + added;
  const callees = new Uint32Array(count);
  const name = new Uint32Array(count);
  const parent = new Int32Array(count);
  const depth = new Uint16Array(count);
  const end = new Uint32Array(count);
  callees.set(graph.callees.subarray(0, position));
  name.set(graph.name.subarray(0, position));
  parent.set(graph.parent.subarray(0, position));
  depth.set(graph.depth.subarray(0, position));
  end.set(graph.end.subarray(0, position));
  for (let index = 1; index <= added; index++) {
    const target = position + index - 1;
    const caller = subtree.parent[index] as number;
    callees[target] = subtree.callees[index] as number;
    name[target] = nameIndexes[subtree.name[index] as number] as number;
    parent[target] = caller === 0 ? node : position + caller - 1;
    depth[target] = (graph.depth[node] as number) + (subtree.depth[index] as number);
    end[target] = position + (subtree.end[index] as number) - 1;
  }
  for (let source = position; source < graph.nodeCount; source++) {
    const target = source + added;
    const caller = graph.parent[source] as number;
    callees[target] = graph.callees[source] as number;
    name[target] = graph.name[source] as number;
    parent[target] = caller >= position ? caller + added : caller;
    depth[target] = graph.depth[source] as number;
    end[target] = (graph.end[source] as number) + added;
  }
  callees[node] = (callees[node] as number) + (subtree.callees[0] as number);
  for (let caller = node; caller >= 0; caller = graph.parent[caller] as number) {
    end[caller] = (end[caller] as number) + added;
  }
  return { callees, name, parent, depth, end };
}

type ValueColumns = Pick<Graph, "self" | "total" | "truncated" | "exact" | "divisor">;

function valueColumns(insertion: Insertion, subtree: Graph): ValueColumns {
  const { graph } = insertion;
  const divisor = greatestCommonDivisor(graph.divisor, subtree.divisor);
  const graphScale = graph.divisor / divisor;
  const subtreeScale = subtree.divisor / divisor;
  // Each magnitude is bounded by a total only if no value is negative; exact columns are right for all.
  const bound =
    largestMagnitude(graph) * Number(graphScale) + largestMagnitude(subtree) * Number(subtreeScale);
  const isExact = graph.exact !== undefined || subtree.exact !== undefined || bound > MAX_EXACT_SUM;
  if (isExact) {
    const exact = exactValues(insertion, subtree, graphScale, subtreeScale);
    const self = roundColumn(exact.self);
    return { divisor, exact, self, total: roundColumn(exact.total), truncated: roundColumn(exact.truncated) };
  }
  const join = (column: "self" | "total" | "truncated") =>
    joinFloats(insertion, graph[column], subtree[column], Number(graphScale), Number(subtreeScale));
  const values = { self: join("self"), total: join("total"), truncated: join("truncated") };
  const calleesTotal =
    (subtree.total[0] as number) - (subtree.self[0] as number) - (subtree.truncated[0] as number);
  const rest = (values.truncated[insertion.node] as number) - calleesTotal * Number(subtreeScale);
  values.truncated[insertion.node] = Math.max(0, rest);
  if (rest < 0) {
    for (let caller = insertion.node; caller >= 0; caller = graph.parent[caller] as number) {
      values.total[caller] = (values.total[caller] as number) - rest;
    }
  }
  return { ...values, divisor, exact: undefined };
}

function joinFloats(
  insertion: Insertion,
  column: Float64Array,
  addition: Float64Array,
  scale: number,
  additionScale: number,
): Float64Array {
  const { position, added } = insertion;
  const joined = new Float64Array(column.length + added);
  for (let index = 0; index < position; index++) joined[index] = (column[index] as number) * scale;
  for (let index = 0; index < added; index++) {
    joined[position + index] = (addition[index + 1] as number) * additionScale;
  }
  for (let index = position; index < column.length; index++) {
    joined[index + added] = (column[index] as number) * scale;
  }
  return joined;
}

function exactValues(
  insertion: Insertion,
  subtree: Graph,
  scale: bigint,
  subtreeScale: bigint,
): ExactColumns {
  const { graph, node, position, added } = insertion;
  const join = (column: "self" | "total" | "truncated") => {
    const before = exactColumn(graph, column);
    const addition = exactColumn(subtree, column);
    const joined = new BigInt64Array(before.length + added);
    for (let index = 0; index < position; index++) joined[index] = (before[index] as bigint) * scale;
    for (let index = 0; index < added; index++) {
      joined[position + index] = (addition[index + 1] as bigint) * subtreeScale;
    }
    for (let index = position; index < before.length; index++) {
      joined[index + added] = (before[index] as bigint) * scale;
    }
    return joined;
  };
  const values = { self: join("self"), total: join("total"), truncated: join("truncated") };
  const rootValue = (column: "self" | "total" | "truncated") => exactColumn(subtree, column)[0] as bigint;
  const calleesTotal = (rootValue("total") - rootValue("self") - rootValue("truncated")) * subtreeScale;
  const rest = (values.truncated[node] as bigint) - calleesTotal;
  values.truncated[node] = rest > 0n ? rest : 0n;
  if (rest < 0n) {
    for (let caller = node; caller >= 0; caller = graph.parent[caller] as number) {
      values.total[caller] = (values.total[caller] as bigint) - rest;
    }
  }
  return values;
}

function exactColumn(graph: Graph, column: "self" | "total" | "truncated"): BigInt64Array {
  return graph.exact?.[column] ?? BigInt64Array.from(graph[column], BigInt);
}

function largestMagnitude(graph: Graph): number {
  let sum = 0;
  for (let node = 0; node < graph.nodeCount; node++) {
    sum += Math.abs(graph.self[node] as number) + Math.abs(graph.truncated[node] as number);
  }
  return sum;
}

export function greatestCommonDivisor(first: bigint, second: bigint): bigint {
  let larger = first < 0n ? -first : first;
  let smaller = second < 0n ? -second : second;
  while (smaller > 0n) {
    const rest = larger % smaller;
    larger = smaller;
    smaller = rest;
  }
  return larger;
}

type NameColumns = Pick<
  Graph,
  "names" | "nameFile" | "nameBinary" | "namePackage" | "nameLine" | "files" | "binaries" | "packages"
>;

interface MergedNames {
  readonly columns: NameColumns;
  /** Index in the merged names of each name of the subtree. */
  readonly indexes: Uint32Array;
}

function mergeNames(graph: Graph, subtree: Graph): MergedNames {
  const names = [...graph.names];
  const nameFile = [...graph.nameFile];
  const nameBinary = [...graph.nameBinary];
  const namePackage = [...graph.namePackage];
  const nameLine = [...graph.nameLine];
  const files = new TextTable(graph.files);
  const binaries = new TextTable(graph.binaries);
  const packages = new TextTable(graph.packages);
  const known = new Map<string, number>();
  for (let index = names.length - 1; index >= 0; index--) known.set(nameKey(graph, index), index);
  const indexes = new Uint32Array(subtree.names.length);
  for (let index = 0; index < subtree.names.length; index++) {
    const key = nameKey(subtree, index);
    let merged = known.get(key);
    if (merged === undefined) {
      merged = names.push(subtree.names[index] as string) - 1;
      known.set(key, merged);
      nameFile.push(files.indexOf(subtree.files[subtree.nameFile[index] as number] as string));
      nameBinary.push(binaries.indexOf(subtree.binaries[subtree.nameBinary[index] as number] as string));
      namePackage.push(packages.indexOf(subtree.packages[subtree.namePackage[index] as number] as string));
      nameLine.push(subtree.nameLine[index] as number);
    }
    indexes[index] = merged;
  }
  const columns: NameColumns = {
    names,
    nameFile: Uint32Array.from(nameFile),
    nameBinary: Uint32Array.from(nameBinary),
    namePackage: Uint32Array.from(namePackage),
    nameLine: Uint32Array.from(nameLine),
    files: files.texts,
    binaries: binaries.texts,
    packages: packages.texts,
  };
  return { columns, indexes };
}

function nameKey(graph: Graph, index: number): string {
  return `${graph.nameLine[index]} ${graph.names[index]}`;
}

/** Texts with the index of each. */
class TextTable {
  readonly texts: string[];
  private readonly indexes = new Map<string, number>();

  constructor(texts: readonly string[]) {
    this.texts = [...texts];
    for (let index = texts.length - 1; index >= 0; index--) this.indexes.set(texts[index] as string, index);
  }

  indexOf(text: string): number {
    const known = this.indexes.get(text);
    if (known !== undefined) return known;
    const index = this.texts.push(text) - 1;
    this.indexes.set(text, index);
    return index;
  }
}
