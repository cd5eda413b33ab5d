// Form of a graph that crosses from a worker to the page: columns that move, texts joined to one.

import type { ExactColumns, Graph } from "./graph";

/** Texts as one text and the index after the last character of each. One long text is copied far faster than many. */
export interface JoinedTexts {
  readonly text: string;
  readonly ends: Uint32Array;
}

type TextTables = "names" | "files" | "binaries" | "packages";

export type PackedGraph = Omit<Graph, TextTables> & Readonly<Record<TextTables, JoinedTexts>>;

export function joinTexts(texts: readonly string[]): JoinedTexts {
  const ends = new Uint32Array(texts.length);
  let length = 0;
  for (let index = 0; index < texts.length; index++) {
    length += (texts[index] as string).length;
    ends[index] = length;
  }
  return { text: texts.join(""), ends };
}

export function splitTexts(joined: JoinedTexts): string[] {
  const texts = new Array<string>(joined.ends.length);
  let start = 0;
  for (let index = 0; index < texts.length; index++) {
    const end = joined.ends[index] as number;
    texts[index] = joined.text.slice(start, end);
    start = end;
  }
  return texts;
}

/** Packs a graph for `postMessage`. */
export function packGraph(graph: Graph): PackedGraph {
  return {
    ...graph,
    names: joinTexts(graph.names),
    files: joinTexts(graph.files),
    binaries: joinTexts(graph.binaries),
    packages: joinTexts(graph.packages),
  };
}

export function unpackGraph(packed: PackedGraph): Graph {
  return {
    ...packed,
    names: splitTexts(packed.names),
    files: splitTexts(packed.files),
    binaries: splitTexts(packed.binaries),
    packages: splitTexts(packed.packages),
  };
}

/** Lists the buffers of a packed graph, so that `postMessage` moves them instead of copying. */
export function buffersOfGraph(packed: PackedGraph): ArrayBuffer[] {
  const exact: Partial<ExactColumns> = packed.exact ?? {};
  const columns = [
    packed.callees,
    packed.name,
    packed.parent,
    packed.depth,
    packed.end,
    packed.self,
    packed.total,
    packed.truncated,
    packed.nameFile,
    packed.nameBinary,
    packed.namePackage,
    packed.nameLine,
    packed.names.ends,
    packed.files.ends,
    packed.binaries.ends,
    packed.packages.ends,
    exact.self,
    exact.total,
    exact.truncated,
  ];
  const buffers = new Set<ArrayBuffer>();
  for (const column of columns) if (column !== undefined) buffers.add(column.buffer as ArrayBuffer);
  return [...buffers];
}
