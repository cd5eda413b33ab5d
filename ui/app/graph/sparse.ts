// Decoder of columns that state only the nodes with a value: values, and gaps between their nodes.

import {
  type ByteSpan,
  countVarints,
  GraphFormatError,
  readExactColumn,
  readUint32Column,
  scatterSignedColumn,
} from "./wire";

/** Spans of the values and of the gaps of a column. */
export interface SparseSpans {
  readonly values: readonly ByteSpan[];
  readonly gaps: readonly ByteSpan[];
}

/** Column of all nodes, with what `readExactSparseColumn` needs. */
export interface SparseColumn {
  readonly values: Float64Array;
  /** Sum of the magnitudes. Up to 2^53, the column and all its partial sums are exact. */
  readonly magnitude: number;
  /** Index of the node of each value on the wire. */
  readonly nodes: Uint32Array;
}

/** Decodes a column to one value a node. Nodes without a value have 0. */
export function readSparseColumn(
  bytes: Uint8Array,
  spans: SparseSpans,
  nodeCount: number,
  column: string,
): SparseColumn {
  const count = countVarints(bytes, spans.gaps);
  const nodes = readUint32Column(bytes, spans.gaps, count, `${column}_gap`);
  let next = 0;
  for (let index = 0; index < count; index++) {
    const node = next + (nodes[index] as number);
    nodes[index] = node;
    next = node + 1;
  }
  // Nodes only grow, so the last one is the greatest.
  if (next > nodeCount) throw new GraphFormatError(`gaps of column ${column} pass ${nodeCount} nodes`);
  const values = new Float64Array(nodeCount);
  const magnitude = scatterSignedColumn(bytes, spans.values, nodes, values, column);
  return { values, magnitude, nodes };
}

/** Decodes the values of a column without rounding. */
export function readExactSparseColumn(
  bytes: Uint8Array,
  spans: SparseSpans,
  column: SparseColumn,
): BigInt64Array {
  const stated = readExactColumn(bytes, spans.values, column.nodes.length);
  const values = new BigInt64Array(column.values.length);
  for (let index = 0; index < stated.length; index++)
    values[column.nodes[index] as number] = stated[index] as bigint;
  return values;
}
