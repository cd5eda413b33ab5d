// Call graph as columns, the form in which the server sends it and the canvas draws it.

/** Call tree in preorder: one entry a node in each column. The root is node 0. */
export interface Graph {
  readonly nodeCount: number;
  /** Number of callees of each node. */
  readonly callees: Uint32Array;
  /** Index of each node's name in `names`. */
  readonly name: Uint32Array;
  /** Index of each node's caller. The root has -1. */
  readonly parent: Int32Array;
  /** Number of callers of each node. */
  readonly depth: Uint16Array;
  /** Index after the last node of each node's subtree. */
  readonly end: Uint32Array;
  /** Values as multiples of `divisor`, for layout. Exact up to 2^53; see `exactSelf` beyond. */
  readonly self: Float64Array;
  readonly total: Float64Array;
  /** Weight of callees that the server left out. */
  readonly truncated: Float64Array;
  /** Exact multiples, only where sums pass 2^53. */
  readonly exact: ExactColumns | undefined;
  readonly divisor: bigint;
  readonly names: readonly string[];
  /** Indexes in `files`, `binaries` and `packages`, one entry a name. Entry 0 of each table is the empty text. */
  readonly nameFile: Uint32Array;
  readonly nameBinary: Uint32Array;
  readonly namePackage: Uint32Array;
  readonly nameLine: Uint32Array;
  readonly files: readonly string[];
  readonly binaries: readonly string[];
  readonly packages: readonly string[];
  /** Total of the query, in the unit of the profile type. */
  readonly queryTotal: bigint;
  readonly unit: string;
  /** What one sample stands for; 0 if unknown. */
  readonly period: bigint;
  readonly profiles: bigint;
  /** Number of nodes before truncation. */
  readonly fullNodes: bigint;
  /** Number of different callees of the root before truncation. */
  readonly rootCallees: bigint;
  readonly warnings: readonly string[];
  /** Number of profiles that displayed values are divided by; 0 if values are sums. */
  readonly averagedProfiles: bigint;
  readonly resolution: string;
}

export interface ExactColumns {
  readonly self: BigInt64Array;
  readonly total: BigInt64Array;
  readonly truncated: BigInt64Array;
}
