// Shape and totals of a call tree, computed from its preorder.

import type { ExactColumns } from "./graph";
import { GraphFormatError } from "./wire";

/** Largest magnitude up to which sums of floating-point numbers are exact. */
export const MAX_EXACT_SUM = Number.MAX_SAFE_INTEGER;

/** Number of frames above the deepest node that `depth` can hold. */
export const MAX_DEPTH = 0xffff;
const MIN_INT64 = -(2n ** 63n);
const MAX_INT64 = 2n ** 63n - 1n;

/** Columns that follow from the number of callees. */
export interface TreeShape {
  readonly parent: Int32Array;
  readonly depth: Uint16Array;
  readonly end: Uint32Array;
}

/** Computes callers, depths and subtree ends. Rejects counts that do not describe exactly one tree. */
export function shapeOfPreorder(callees: Uint32Array): TreeShape {
  const nodeCount = callees.length;
  const parent = new Int32Array(nodeCount);
  const depth = new Uint16Array(nodeCount);
  const end = new Uint32Array(nodeCount);
  const missing = callees.slice();
  let caller = -1;
  let level = 0;
  for (let node = 0; node < nodeCount; node++) {
    if (caller < 0 && node > 0)
      throw new GraphFormatError(`${nodeCount - node} nodes follow the end of the tree`);
    parent[node] = caller;
    depth[node] = level;
    if ((callees[node] as number) > 0) {
      caller = node;
      if (++level > MAX_DEPTH) throw new GraphFormatError(`tree is deeper than ${MAX_DEPTH} frames`);
      continue;
    }
    // A leaf also ends all callers of which it is in the last callee.
    end[node] = node + 1;
    while (caller >= 0) {
      const left = (missing[caller] as number) - 1;
      missing[caller] = left;
      if (left > 0) break;
      end[caller] = node + 1;
      caller = parent[caller] as number;
      level--;
    }
  }
  if (caller >= 0) throw new GraphFormatError(`node ${caller} lacks ${missing[caller]} of its callees`);
  return { parent, depth, end };
}

/** Sums self values and truncated weights from the leaves to the root. */
export function sumTotals(self: Float64Array, truncated: Float64Array, parent: Int32Array): Float64Array {
  const total = new Float64Array(self.length);
  for (let node = self.length - 1; node >= 0; node--) {
    const sum = (total[node] as number) + (self[node] as number) + (truncated[node] as number);
    total[node] = sum;
    if (node > 0) {
      const caller = parent[node] as number;
      total[caller] = (total[caller] as number) + sum;
    }
  }
  return total;
}

/** As `sumTotals`, without rounding. Rejects totals beyond 64 bits. */
export function sumExactTotals(
  self: BigInt64Array,
  truncated: BigInt64Array,
  parent: Int32Array,
): ExactColumns {
  const total = new BigInt64Array(self.length);
  for (let node = self.length - 1; node >= 0; node--) {
    const sum = fitInt64((total[node] as bigint) + (self[node] as bigint) + (truncated[node] as bigint));
    total[node] = sum;
    if (node > 0) {
      const caller = parent[node] as number;
      total[caller] = fitInt64((total[caller] as bigint) + sum);
    }
  }
  return { self, total, truncated };
}

function fitInt64(value: bigint): bigint {
  if (value < MIN_INT64 || value > MAX_INT64) throw new GraphFormatError("total is beyond 64 bits");
  return value;
}

/** Rounds exact columns to the floating-point columns that the layout uses. */
export function roundColumn(exact: BigInt64Array): Float64Array {
  return Float64Array.from(exact, Number);
}
