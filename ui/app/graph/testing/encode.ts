// Encoder of `athanor.v1.GraphResponse` for tests and benches, independent of the decoder.

/** Plain values of a response. */
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

/** Encodes a response with the numbers of fields of the `.proto` file. */
export function encodeResponse(fields: ResponseFields): Uint8Array {
  const writer = new ByteWriter();
  const utf8 = new TextEncoder();
  const column = (field: number, values: readonly (bigint | number)[]) => {
    if (values.length > 0) writer.append(encodeBytesField(field, encodeVarints(values)));
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
  column(4, fields.truncated.map(zigzag));
  integer(5, fields.divisor);
  texts(6, fields.names);
  column(7, fields.nameFile);
  column(8, fields.nameBinary);
  column(9, fields.namePackage);
  column(10, fields.nameLine);
  texts(11, fields.files);
  texts(12, fields.binaries);
  texts(13, fields.packages);
  integer(14, fields.total);
  if (fields.unit !== "") texts(15, [fields.unit]);
  integer(16, fields.period);
  integer(17, fields.profiles);
  integer(18, fields.fullNodes);
  integer(19, fields.rootCallees);
  texts(20, fields.warnings);
  integer(21, fields.averagedProfiles);
  if (fields.resolution !== "") texts(22, [fields.resolution]);
  return writer.finish();
}
