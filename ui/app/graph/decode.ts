// Decoder of `athanor.v1.GraphResponse`, written by hand: straight from bytes to columns.

import type { ExactColumns, Graph } from "./graph";
import { MAX_EXACT_SUM, roundColumn, shapeOfPreorder, sumExactTotals, sumTotals } from "./shape";
import {
  type ByteSpan,
  countVarints,
  FieldReader,
  GraphFormatError,
  readExactColumn,
  readSignedColumn,
  readTexts,
  readUint32Column,
  WIRE_BYTES,
  WIRE_VARINT,
} from "./wire";

export { GraphFormatError } from "./wire";

/** Numbers of the fields of `GraphResponse`. */
const FIELD = {
  callees: 1,
  name: 2,
  self: 3,
  truncated: 4,
  divisor: 5,
  names: 6,
  nameFile: 7,
  nameBinary: 8,
  namePackage: 9,
  nameLine: 10,
  files: 11,
  binaries: 12,
  packages: 13,
  total: 14,
  unit: 15,
  period: 16,
  profiles: 17,
  fullNodes: 18,
  rootCallees: 19,
  warnings: 20,
  averagedProfiles: 21,
  resolution: 22,
} as const;

/** Bound of the spans of a message: texts and parts of columns. Far more than the names of any graph that is drawn. */
const MAX_SPANS = 8_000_000;

const LAST_FIELD = FIELD.resolution;
const SPAN_FIELDS: ReadonlySet<number> = new Set([
  FIELD.callees,
  FIELD.name,
  FIELD.self,
  FIELD.truncated,
  FIELD.names,
  FIELD.nameFile,
  FIELD.nameBinary,
  FIELD.namePackage,
  FIELD.nameLine,
  FIELD.files,
  FIELD.binaries,
  FIELD.packages,
  FIELD.unit,
  FIELD.warnings,
  FIELD.resolution,
]);

/** Fields of a message by number: spans of columns and texts, last values of integers. */
interface MessageFields {
  readonly bytes: Uint8Array;
  readonly spans: readonly ByteSpan[][];
  readonly integers: readonly bigint[];
}

function scanFields(bytes: Uint8Array): MessageFields {
  const spans: ByteSpan[][] = Array.from({ length: LAST_FIELD + 1 }, () => []);
  const integers: bigint[] = new Array<bigint>(LAST_FIELD + 1).fill(0n);
  const reader = new FieldReader(bytes);
  let spanCount = 0;
  while (reader.hasMore()) {
    const tag = reader.readUint32();
    const field = tag >>> 3;
    const wireType = tag & 7;
    if (field === 0) throw new GraphFormatError("field number is 0");
    if (field > LAST_FIELD) {
      reader.skipField(wireType);
      continue;
    }
    const expected = SPAN_FIELDS.has(field) ? WIRE_BYTES : WIRE_VARINT;
    if (wireType !== expected) {
      throw new GraphFormatError(`field ${field} has wire type ${wireType} instead of ${expected}`);
    }
    if (expected === WIRE_BYTES) {
      if (++spanCount > MAX_SPANS) throw new GraphFormatError(`message has more than ${MAX_SPANS} fields`);
      spans[field]?.push(reader.readSpan());
    } else integers[field] = reader.readVarint();
  }
  return { bytes, spans, integers };
}

/** Decodes the bytes of a response. Throws `GraphFormatError` if they break the format. Costs O(bytes). */
export function decodeGraph(bytes: Uint8Array): Graph {
  const fields = scanFields(bytes);
  const nodes = decodeNodes(fields);
  const names = decodeNames(fields);
  requireIndexes(nodes.name, names.names.length, "name");
  const signed = (field: number) => BigInt.asIntN(64, fields.integers[field] ?? 0n);
  const unsigned = (field: number) => fields.integers[field] ?? 0n;
  const divisor = fields.integers[FIELD.divisor] === 0n ? 1n : signed(FIELD.divisor);
  if (divisor < 1n) throw new GraphFormatError(`divisor is ${divisor}`);
  return {
    ...nodes,
    ...names,
    divisor,
    queryTotal: signed(FIELD.total),
    unit: lastText(fields, FIELD.unit),
    period: signed(FIELD.period),
    profiles: unsigned(FIELD.profiles),
    fullNodes: unsigned(FIELD.fullNodes),
    rootCallees: unsigned(FIELD.rootCallees),
    warnings: textsOf(fields, FIELD.warnings),
    averagedProfiles: unsigned(FIELD.averagedProfiles),
    resolution: lastText(fields, FIELD.resolution),
  };
}

type NodeColumns = Pick<
  Graph,
  "nodeCount" | "callees" | "name" | "parent" | "depth" | "end" | "self" | "total" | "truncated" | "exact"
>;

function decodeNodes(fields: MessageFields): NodeColumns {
  const { bytes } = fields;
  const spansOf = (field: number) => fields.spans[field] as ByteSpan[];
  // A packed column has at most one entry a byte, so no count can ask for more memory than the message has.
  const nodeCount = countVarints(bytes, spansOf(FIELD.callees));
  const callees = readUint32Column(bytes, spansOf(FIELD.callees), nodeCount, "callees");
  const name = readUint32Column(bytes, spansOf(FIELD.name), nodeCount, "name");
  const self = readSignedColumn(bytes, spansOf(FIELD.self), nodeCount, "self");
  const truncated = readSignedColumn(bytes, spansOf(FIELD.truncated), nodeCount, "truncated");
  if (nodeCount === 0) return emptyRoot();
  const shape = shapeOfPreorder(callees);
  const common = { nodeCount, callees, name, ...shape };
  if (self.magnitude + truncated.magnitude <= MAX_EXACT_SUM) {
    const total = sumTotals(self.values, truncated.values, shape.parent);
    return { ...common, self: self.values, total, truncated: truncated.values, exact: undefined };
  }
  const exact = sumExactTotals(
    readExactColumn(bytes, spansOf(FIELD.self), nodeCount),
    readExactColumn(bytes, spansOf(FIELD.truncated), nodeCount),
    shape.parent,
  );
  return {
    ...common,
    self: self.values,
    total: roundColumn(exact.total),
    truncated: truncated.values,
    exact,
  };
}

/** A response without nodes is the graph of no samples: a root without callees. */
function emptyRoot(): NodeColumns {
  return {
    nodeCount: 1,
    callees: new Uint32Array(1),
    name: new Uint32Array(1),
    parent: Int32Array.of(-1),
    depth: new Uint16Array(1),
    end: Uint32Array.of(1),
    self: new Float64Array(1),
    total: new Float64Array(1),
    truncated: new Float64Array(1),
    exact: undefined as ExactColumns | undefined,
  };
}

type NameColumns = Pick<
  Graph,
  "names" | "nameFile" | "nameBinary" | "namePackage" | "nameLine" | "files" | "binaries" | "packages"
>;

function decodeNames(fields: MessageFields): NameColumns {
  const names = textsOf(fields, FIELD.names);
  const column = (field: number, label: string) =>
    readUint32Column(fields.bytes, fields.spans[field] as ByteSpan[], names.length, label);
  const nameFile = column(FIELD.nameFile, "name_file");
  const nameBinary = column(FIELD.nameBinary, "name_binary");
  const namePackage = column(FIELD.namePackage, "name_package");
  const nameLine = column(FIELD.nameLine, "name_line");
  if (names.length === 0) {
    const zero = new Uint32Array(1);
    const none = [""];
    return {
      names: none,
      nameFile: zero,
      nameBinary: zero.slice(),
      namePackage: zero.slice(),
      nameLine: zero.slice(),
      files: none,
      binaries: none,
      packages: none,
    };
  }
  const files = tableOf(fields, FIELD.files, nameFile, "files");
  const binaries = tableOf(fields, FIELD.binaries, nameBinary, "binaries");
  const packages = tableOf(fields, FIELD.packages, namePackage, "packages");
  return { names, nameFile, nameBinary, namePackage, nameLine, files, binaries, packages };
}

function tableOf(fields: MessageFields, field: number, indexes: Uint32Array, label: string): string[] {
  const table = textsOf(fields, field);
  if (table.length === 0) table.push("");
  if (table[0] !== "") throw new GraphFormatError(`entry 0 of ${label} is not the empty text`);
  requireIndexes(indexes, table.length, label);
  return table;
}

function requireIndexes(indexes: Uint32Array, length: number, label: string): void {
  let largest = 0;
  for (let position = 0; position < indexes.length; position++) {
    const index = indexes[position] as number;
    if (index > largest) largest = index;
  }
  if (largest >= length)
    throw new GraphFormatError(`index ${largest} of ${label} is beyond ${length} entries`);
}

function textsOf(fields: MessageFields, field: number): string[] {
  return readTexts(fields.bytes, fields.spans[field] as ByteSpan[]);
}

function lastText(fields: MessageFields, field: number): string {
  return textsOf(fields, field).at(-1) ?? "";
}
