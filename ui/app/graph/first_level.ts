// Frame above a graph: the node of a path, which the server sends as the root, becomes the first level again.

import type { ExactColumns, Graph } from "./graph";
import { nameOfNode } from "./path";
import { shapeOfPreorder } from "./shape";

/** Name with its place, as a graph has it. */
export interface FrameName {
  readonly name: string;
  readonly line: number;
  readonly file: string;
  readonly binary: string;
  readonly package: string;
}

/** Returns the name of a node with its place. */
export function frameNameOf(graph: Graph, node: number): FrameName {
  const index = graph.name[node] as number;
  return {
    name: nameOfNode(graph, node),
    line: graph.nameLine[index] as number,
    file: graph.files[graph.nameFile[index] as number] as string,
    binary: graph.binaries[graph.nameBinary[index] as number] as string,
    package: graph.packages[graph.namePackage[index] as number] as string,
  };
}

/** Returns the graph below a new root, where the former root is the only callee and has a name. */
export function nameFirstLevel(graph: Graph, frame: FrameName): Graph {
  const callees = Uint32Array.from([1, ...graph.callees]);
  const name = Uint32Array.from([graph.name[0] as number, ...graph.name]);
  name[1] = graph.names.length;
  const above = (column: Float64Array, value: number) => Float64Array.from([value, ...column]);
  return {
    ...graph,
    ...shapeOfPreorder(callees),
    callees,
    name,
    nodeCount: graph.nodeCount + 1,
    self: above(graph.self, 0),
    total: above(graph.total, graph.total[0] as number),
    truncated: above(graph.truncated, 0),
    exact: graph.exact === undefined ? undefined : exactBelowRoot(graph.exact),
    names: [...graph.names, frame.name],
    nameLine: Uint32Array.from([...graph.nameLine, frame.line]),
    nameFile: Uint32Array.from([...graph.nameFile, graph.files.length]),
    nameBinary: Uint32Array.from([...graph.nameBinary, graph.binaries.length]),
    namePackage: Uint32Array.from([...graph.namePackage, graph.packages.length]),
    files: [...graph.files, frame.file],
    binaries: [...graph.binaries, frame.binary],
    packages: [...graph.packages, frame.package],
    fullNodes: graph.fullNodes + 1n,
    rootCallees: 1n,
  };
}

function exactBelowRoot({ self, total, truncated }: ExactColumns): ExactColumns {
  return {
    self: BigInt64Array.from([0n, ...self]),
    total: BigInt64Array.from([total[0] as bigint, ...total]),
    truncated: BigInt64Array.from([0n, ...truncated]),
  };
}
