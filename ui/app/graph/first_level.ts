// Frame above a graph: the node of a path, which the server sends as the root, becomes the first level.

import type { ExactColumns, Graph } from "./graph";
import { copyTexts, nameOfNode } from "./path";
import { MAX_DEPTH, type TreeShape } from "./shape";
import { GraphFormatError } from "./wire";

/** Name with its place, as a graph has it. */
export interface FrameName {
  readonly name: string;
  readonly line: number;
  readonly file: string;
  readonly binary: string;
  readonly package: string;
}

/** Returns the name of a node with its place, as copies that do not keep the texts of the graph in memory. */
export function frameNameOf(graph: Graph, node: number): FrameName {
  const index = graph.name[node] as number;
  return copyTexts({
    name: nameOfNode(graph, node),
    line: graph.nameLine[index] as number,
    file: graph.files[graph.nameFile[index] as number] as string,
    binary: graph.binaries[graph.nameBinary[index] as number] as string,
    package: graph.packages[graph.namePackage[index] as number] as string,
  });
}

type NumberColumn = Float64Array | Int32Array | Uint16Array | Uint32Array;

/** Returns the graph below a new root, where the former root is the only callee and has a name. */
export function nameFirstLevel(graph: Graph, frame: FrameName): Graph {
  const nodeCount = graph.nodeCount + 1;
  const nameCount = graph.names.length;
  const name = prepend(new Uint32Array(nodeCount), graph.name[0] as number, graph.name);
  name[1] = nameCount;
  const indexes = (column: Uint32Array, last: number) => append(new Uint32Array(nameCount + 1), column, last);
  return {
    ...graph,
    ...shapeBelowRoot(graph),
    callees: prepend(new Uint32Array(nodeCount), 1, graph.callees),
    name,
    nodeCount,
    self: prepend(new Float64Array(nodeCount), 0, graph.self),
    total: prepend(new Float64Array(nodeCount), graph.total[0] as number, graph.total),
    truncated: prepend(new Float64Array(nodeCount), 0, graph.truncated),
    exact: graph.exact === undefined ? undefined : exactBelowRoot(graph.exact),
    names: [...graph.names, frame.name],
    nameLine: indexes(graph.nameLine, frame.line),
    nameFile: indexes(graph.nameFile, graph.files.length),
    nameBinary: indexes(graph.nameBinary, graph.binaries.length),
    namePackage: indexes(graph.namePackage, graph.packages.length),
    files: [...graph.files, frame.file],
    binaries: [...graph.binaries, frame.binary],
    packages: [...graph.packages, frame.package],
    fullNodes: graph.fullNodes + 1n,
    rootCallees: 1n,
  };
}

/** Returns the shape with a new root, one level above the former nodes. Rejects trees that become too deep. */
function shapeBelowRoot({ nodeCount, parent, depth, end }: Graph): TreeShape {
  if (depth.includes(MAX_DEPTH)) throw new GraphFormatError(`tree is deeper than ${MAX_DEPTH} frames`);
  return {
    parent: prependShifted(new Int32Array(nodeCount + 1), -1, parent),
    depth: prependShifted(new Uint16Array(nodeCount + 1), 0, depth),
    end: prependShifted(new Uint32Array(nodeCount + 1), nodeCount + 1, end),
  };
}

/** Fills a longer column with a first entry and the entries of a column. */
function prepend<Column extends NumberColumn>(longer: Column, first: number, column: NumberColumn): Column {
  longer.fill(first, 0, 1);
  longer.set(column, 1);
  return longer;
}

/** As `prepend`, with 1 added to each entry of the column: nodes move by one index and one level. */
function prependShifted<Column extends NumberColumn>(
  longer: Column,
  first: number,
  column: NumberColumn,
): Column {
  const entries: NumberColumn = longer;
  entries[0] = first;
  for (let index = 0; index < column.length; index++) entries[index + 1] = (column[index] as number) + 1;
  return longer;
}

function append(longer: Uint32Array, column: Uint32Array, last: number): Uint32Array {
  longer.set(column);
  longer[column.length] = last;
  return longer;
}

function exactBelowRoot({ self, total, truncated }: ExactColumns): ExactColumns {
  return {
    self: prependExact(0n, self),
    total: prependExact(total[0] as bigint, total),
    truncated: prependExact(0n, truncated),
  };
}

function prependExact(first: bigint, column: BigInt64Array): BigInt64Array {
  const longer = new BigInt64Array(column.length + 1);
  longer[0] = first;
  longer.set(column, 1);
  return longer;
}
