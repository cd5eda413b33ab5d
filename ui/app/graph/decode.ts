// Decoder of `athanor.v1.GraphResponse`, written by hand: straight from bytes to columns.

import type { ExactColumns, Graph } from "./graph";
import { MessageBudget } from "./message_budget";
import { MAX_EXACT_SUM, roundColumn, shapeOfPreorder, sumExactTotals, sumTotals } from "./shape";
import { readExactSparseColumn, readSparseColumn, type SparseSpans } from "./sparse";
import { readTextTable, type TextTable } from "./text_table";
import {
  type ByteSpan,
  countVarints,
  FieldReader,
  GraphFormatError,
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
  selfGap: 4,
  truncated: 5,
  truncatedGap: 6,
  divisor: 7,
  names: 8,
  nameFile: 9,
  nameBinary: 10,
  namePackage: 11,
  nameLine: 12,
  files: 13,
  binaries: 14,
  packages: 15,
  total: 16,
  unit: 17,
  period: 18,
  profiles: 19,
  fullNodes: 20,
  rootCallees: 21,
  warnings: 22,
  averagedProfiles: 23,
  resolution: 24,
} as const;

const LAST_FIELD = FIELD.resolution;
const SPAN_FIELDS: ReadonlySet<number> = new Set([
  FIELD.callees,
  FIELD.name,
  FIELD.self,
  FIELD.selfGap,
  FIELD.truncated,
  FIELD.truncatedGap,
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
  readonly budget: MessageBudget;
}

function scanFields(bytes: Uint8Array): MessageFields {
  const spans: ByteSpan[][] = Array.from({ length: LAST_FIELD + 1 }, () => []);
  const integers: bigint[] = new Array<bigint>(LAST_FIELD + 1).fill(0n);
  const reader = new FieldReader(bytes);
  const budget = new MessageBudget();
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
      budget.addSpan();
      spans[field]?.push(reader.readSpan());
    } else integers[field] = reader.readVarint();
  }
  return { bytes, spans, integers, budget };
}

/**
 * Decodes the bytes of a response. Throws `GraphFormatError` if they break the format or a bound. Costs O(bytes of the
 * message and of its texts), and the texts have at most `MAX_TEXT_BYTES`.
 */
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
  const selfSpans: SparseSpans = { values: spansOf(FIELD.self), gaps: spansOf(FIELD.selfGap) };
  const self = readSparseColumn(bytes, selfSpans, nodeCount, "self");
  const truncatedSpans: SparseSpans = {
    values: spansOf(FIELD.truncated),
    gaps: spansOf(FIELD.truncatedGap),
  };
  const truncated = readSparseColumn(bytes, truncatedSpans, nodeCount, "truncated");
  if (nodeCount === 0) return emptyRoot();
  const shape = shapeOfPreorder(callees);
  const common = { nodeCount, callees, name, ...shape };
  if (self.magnitude + truncated.magnitude <= MAX_EXACT_SUM) {
    const total = sumTotals(self.values, truncated.values, shape.parent);
    return { ...common, self: self.values, total, truncated: truncated.values, exact: undefined };
  }
  const exact = sumExactTotals(
    readExactSparseColumn(bytes, selfSpans, self),
    readExactSparseColumn(bytes, truncatedSpans, truncated),
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
  const names = tableOf(fields, FIELD.names, "names");
  const count = names.texts.length;
  const column = (field: number, label: string) =>
    readUint32Column(fields.bytes, fields.spans[field] as ByteSpan[], count, label);
  const nameFile = column(FIELD.nameFile, "name_file");
  const nameBinary = column(FIELD.nameBinary, "name_binary");
  const packageCodes = column(FIELD.namePackage, "name_package");
  const nameLine = column(FIELD.nameLine, "name_line");
  if (count === 0) {
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
  const files = indexedTexts(fields, FIELD.files, nameFile, "files");
  const binaries = indexedTexts(fields, FIELD.binaries, nameBinary, "binaries");
  const listed = tableOf(fields, FIELD.packages, "packages").texts;
  const packages = new PackageTable(names, listed);
  const namePackage = packageCodes.map((code, name) => packages.indexOf(code, name));
  return {
    names: names.texts,
    nameFile,
    nameBinary,
    namePackage,
    nameLine,
    files,
    binaries,
    packages: packages.texts,
  };
}

/** Packages of names: beginnings of the names themselves, or texts that the message lists. */
class PackageTable {
  readonly texts: string[] = [""];
  private readonly indexes = new Map<string, number>([["", 0]]);
  private readonly names: TextTable;
  private readonly listed: readonly string[];
  private lastLength = 0;
  private lastIndex = 0;

  constructor(names: TextTable, listed: readonly string[]) {
    this.names = names;
    this.listed = listed;
  }

  /** Returns the index of a name's package. Names are passed one after the other. */
  indexOf(code: number, name: number): number {
    const number = code >>> 1;
    if ((code & 1) === 1) {
      this.lastLength = 0;
      const text = this.listed[number];
      if (text === undefined)
        throw new GraphFormatError(`index ${number} of packages is beyond ${this.listed.length} entries`);
      return this.intern(text);
    }
    // The beginning of most names is that of the name before.
    if (number === this.lastLength && number <= (this.names.shared[name] as number) && number > 0) {
      return this.lastIndex;
    }
    const text = beginningOfText(this.names.texts[name] as string, number);
    if (text === undefined) throw new GraphFormatError(`package of name ${name} is no beginning of it`);
    this.lastLength = number;
    this.lastIndex = this.intern(text);
    return this.lastIndex;
  }

  private intern(text: string): number {
    const known = this.indexes.get(text);
    if (known !== undefined) return known;
    const index = this.texts.push(text) - 1;
    this.indexes.set(text, index);
    return index;
  }
}

/** Returns the first bytes of a text, or undefined if there are not so many or if they split a character. */
function beginningOfText(text: string, bytes: number): string | undefined {
  let length = 0;
  let left = bytes;
  while (left > 0 && length < text.length) {
    const point = text.codePointAt(length) as number;
    left -= point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    length += point < 0x10000 ? 1 : 2;
  }
  return left === 0 ? text.slice(0, length) : undefined;
}

function tableOf(fields: MessageFields, field: number, label: string): TextTable {
  return readTextTable(fields.bytes, fields.spans[field] as ByteSpan[], fields.budget, label);
}

/** Decodes a table to which the names have these indexes. */
function indexedTexts(fields: MessageFields, field: number, indexes: Uint32Array, label: string): string[] {
  const { texts } = tableOf(fields, field, label);
  if (texts.length === 0) texts.push("");
  if (texts[0] !== "") throw new GraphFormatError(`entry 0 of ${label} is not the empty text`);
  requireIndexes(indexes, texts.length, label);
  return texts;
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

/** Decodes the texts of the message itself, which are few. */
function textsOf(fields: MessageFields, field: number): string[] {
  const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  const spans = fields.spans[field] as ByteSpan[];
  return spans.map(({ from, to }) => utf8.decode(fields.bytes.subarray(from, to)));
}

function lastText(fields: MessageFields, field: number): string {
  return textsOf(fields, field).at(-1) ?? "";
}
