// Encoder of `athanor.v1.GraphResponse` for tests and benches, independent of the decoder.

/** Plain values of a response: one entry a node or a name. `namePackage` has indexes in `packages`. */
export interface ResponseFields {
  readonly callees: readonly number[];
  readonly name: readonly number[];
  readonly self: readonly bigint[];
  readonly truncated: readonly bigint[];
  readonly divisor: bigint;
  readonly names: readonly string[];
  readonly nameFile: readonly number[];
  readonly nameBinary: readonly number[];
  readonly namePackage: readonly number[];
  readonly nameLine: readonly number[];
  readonly files: readonly string[];
  readonly binaries: readonly string[];
  readonly packages: readonly string[];
  readonly total: bigint;
  readonly unit: string;
  readonly period: bigint;
  readonly profiles: bigint;
  readonly fullNodes: bigint;
  readonly rootCallees: bigint;
  readonly warnings: readonly string[];
  readonly averagedProfiles: bigint;
  readonly resolution: string;
}

/** Fields of `athanor.v1.TextTable`. */
export interface TableFields {
  readonly text: Uint8Array;
  readonly shared: readonly number[];
  readonly rest: readonly number[];
}

type TextTables = "names" | "files" | "binaries" | "packages";

/** Fields of a response as they are on the wire. */
export type WireFields = Omit<ResponseFields, TextTables> &
  Readonly<Record<TextTables, TableFields>> & {
    readonly selfGap: readonly number[];
    readonly truncatedGap: readonly number[];
  };

const MAX_SHARED_BYTES = 255;

/** Growing list of bytes. */
class ByteWriter {
  private bytes = new Uint8Array(4096);
  private length = 0;

  varint(value: bigint | number): void {
    if (typeof value === "number" && value < 0x80) {
      this.byte(value);
      return;
    }
    let rest = BigInt.asUintN(64, BigInt(value));
    while (rest >= 0x80n) {
      this.byte(Number(rest & 0x7fn) | 0x80);
      rest >>= 7n;
    }
    this.byte(Number(rest));
  }

  append(bytes: Uint8Array): void {
    this.reserve(bytes.length);
    this.bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  finish(): Uint8Array {
    return this.bytes.slice(0, this.length);
  }

  private byte(value: number): void {
    this.reserve(1);
    this.bytes[this.length++] = value;
  }

  private reserve(count: number): void {
    if (this.length + count <= this.bytes.length) return;
    const grown = new Uint8Array(Math.max(this.bytes.length * 2, this.length + count));
    grown.set(this.bytes);
    this.bytes = grown;
  }
}

export function encodeVarints(values: readonly (bigint | number)[]): Uint8Array {
  const writer = new ByteWriter();
  for (const value of values) writer.varint(value);
  return writer.finish();
}

export function zigzag(value: bigint): bigint {
  return value < 0n ? -value * 2n - 1n : value * 2n;
}

/** Encodes one length-delimited field. */
export function encodeBytesField(field: number, bytes: Uint8Array): Uint8Array {
  const writer = new ByteWriter();
  writer.varint(field * 8 + 2);
  writer.varint(bytes.length);
  writer.append(bytes);
  return writer.finish();
}

/** Encodes texts as what each shares with the text before, and the rest. */
export function frontCode(texts: readonly string[]): TableFields {
  const utf8 = new TextEncoder();
  const writer = new ByteWriter();
  const shared: number[] = [];
  const rest: number[] = [];
  let before = new Uint8Array();
  for (const text of texts) {
    const bytes = utf8.encode(text);
    let common = 0;
    const most = Math.min(before.length, bytes.length, MAX_SHARED_BYTES);
    while (common < most && before[common] === bytes[common]) common++;
    // No character is split: bytes of this form continue one.
    while (common > 0 && ((bytes[common] ?? 0) & 0xc0) === 0x80) common--;
    shared.push(common);
    rest.push(bytes.length - common);
    writer.append(bytes.subarray(common));
    before = bytes;
  }
  return { text: writer.finish(), shared, rest };
}

interface SparseEntries {
  readonly values: bigint[];
  readonly gaps: number[];
}

function sparseEntries(column: readonly bigint[]): SparseEntries {
  const values: bigint[] = [];
  const gaps: number[] = [];
  let next = 0;
  for (let node = 0; node < column.length; node++) {
    const value = column[node] as bigint;
    if (value === 0n) continue;
    values.push(value);
    gaps.push(node - next);
    next = node + 1;
  }
  return { values, gaps };
}

/** Returns how the package of a name is written: the length of the name's beginning, or an index. */
function packageCode(name: string, text: string, index: number): number {
  return name.startsWith(text) ? 2 * new TextEncoder().encode(text).length : 2 * index + 1;
}

/** Converts plain values to the form of the wire. */
export function wireOfResponse(fields: ResponseFields): WireFields {
  const self = sparseEntries(fields.self);
  const truncated = sparseEntries(fields.truncated);
  return {
    ...fields,
    self: self.values,
    selfGap: self.gaps,
    truncated: truncated.values,
    truncatedGap: truncated.gaps,
    names: frontCode(fields.names),
    files: frontCode(fields.files),
    binaries: frontCode(fields.binaries),
    packages: frontCode(fields.packages),
    namePackage: fields.namePackage.map((index, name) =>
      packageCode(fields.names[name] as string, fields.packages[index] as string, index),
    ),
  };
}

export function encodeResponse(fields: ResponseFields): Uint8Array {
  return encodeWire(wireOfResponse(fields));
}

/** Encodes a response with the numbers of fields of the `.proto` file. */
export function encodeWire(fields: WireFields): Uint8Array {
  const writer = new ByteWriter();
  const utf8 = new TextEncoder();
  const column = (field: number, values: readonly (bigint | number)[]) => {
    if (values.length > 0) writer.append(encodeBytesField(field, encodeVarints(values)));
  };
  const table = (field: number, values: TableFields) => {
    const message = new ByteWriter();
    message.append(encodeBytesField(1, values.text));
    message.append(encodeBytesField(2, encodeVarints(values.shared)));
    message.append(encodeBytesField(3, encodeVarints(values.rest)));
    writer.append(encodeBytesField(field, message.finish()));
  };
  const texts = (field: number, values: readonly string[]) => {
    for (const text of values) writer.append(encodeBytesField(field, utf8.encode(text)));
  };
  const integer = (field: number, value: bigint) => {
    if (value === 0n) return;
    writer.varint(field * 8);
    writer.varint(value);
  };
  column(1, fields.callees);
  column(2, fields.name);
  column(3, fields.self.map(zigzag));
  column(4, fields.selfGap);
  column(5, fields.truncated.map(zigzag));
  column(6, fields.truncatedGap);
  integer(7, fields.divisor);
  table(8, fields.names);
  column(9, fields.nameFile);
  column(10, fields.nameBinary);
  column(11, fields.namePackage);
  column(12, fields.nameLine);
  table(13, fields.files);
  table(14, fields.binaries);
  table(15, fields.packages);
  integer(16, fields.total);
  if (fields.unit !== "") texts(17, [fields.unit]);
  integer(18, fields.period);
  integer(19, fields.profiles);
  integer(20, fields.fullNodes);
  integer(21, fields.rootCallees);
  texts(22, fields.warnings);
  integer(23, fields.averagedProfiles);
  if (fields.resolution !== "") texts(24, [fields.resolution]);
  return writer.finish();
}
