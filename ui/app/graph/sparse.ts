// Decoder of columns that state only the nodes with a value: values, and gaps between their nodes.

import {
  type ByteSpan,
  countVarints,
  GraphFormatError,
  readExactColumn,
  readSignedColumn,
  readUint32Column,
  type SignedColumn,
} from "./wire";

/** Spans of the values and of the gaps of a column. */
export interface SparseSpans {
  readonly values: readonly ByteSpan[];
  readonly gaps: readonly ByteSpan[];
}

/** Column of all nodes, and what is needed to read it again without rounding. */
export interface SparseColumn extends SignedColumn {
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
  const count = countVarints(bytes, spans.values);
  const stated = readSignedColumn(bytes, spans.values, count, column);
  const nodes = readUint32Column(bytes, spans.gaps, count, `${column}_gap`);
  const values = new Float64Array(nodeCount);
  let next = 0;
  for (let index = 0; index < count; index++) {
    const node = next + (nodes[index] as number);
    const value = stated.values[index] as number;
    if (node >= nodeCount)
      throw new GraphFormatError(`entry ${index} of column ${column} is beyond ${nodeCount} nodes`);
    if (value === 0) throw new GraphFormatError(`entry ${index} of column ${column} is 0`);
    nodes[index] = node;
    values[node] = value;
    next = node + 1;
  }
  return { values, magnitude: stated.magnitude, nodes };
}

/** Decodes the values again, without rounding. */
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
