// Encoder of requests as protobuf, driven by the generated field tables.
import { ENUM_TABLES, FIELD_TABLES, type FieldEntry } from "./types";

const WIRE_VARINT = 0;
const WIRE_LENGTH = 2;
/** Largest encoded message. A request has at most a selector, transforms and a path. */
export const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
const MAX_NESTING = 16;

type JsonMessage = Readonly<Record<string, unknown>>;

class ByteWriter {
  private bytes = new Uint8Array(256);
  length = 0;

  private reserve(count: number): void {
    const needed = this.length + count;
    if (needed > MAX_MESSAGE_BYTES) throw new RangeError(`request is larger than ${MAX_MESSAGE_BYTES} bytes`);
    if (needed <= this.bytes.length) return;
    const grown = new Uint8Array(Math.max(this.bytes.length * 2, needed));
    grown.set(this.bytes.subarray(0, this.length));
    this.bytes = grown;
  }

  writeVarint(value: bigint): void {
    this.reserve(10);
    let rest = BigInt.asUintN(64, value);
    while (rest > 0x7fn) {
      this.bytes[this.length++] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    this.bytes[this.length++] = Number(rest);
  }

  writeTag(number: number, wire: number): void {
    this.writeVarint((BigInt(number) << 3n) | BigInt(wire));
  }

  writeBytes(bytes: Uint8Array): void {
    this.reserve(bytes.length);
    this.bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  finish(): Uint8Array<ArrayBuffer> {
    return this.bytes.slice(0, this.length);
  }
}

/** Encodes a message from its JSON form. Throws a RangeError if a value does not fit its field. */
export function encodeMessage(type: string, message: JsonMessage, nesting = 0): Uint8Array<ArrayBuffer> {
  const fields = FIELD_TABLES[type];
  if (fields === undefined) throw new RangeError(`message ${type} has no field table`);
  if (nesting > MAX_NESTING) throw new RangeError(`message is nested deeper than ${MAX_NESTING}`);
  const writer = new ByteWriter();
  for (const field of fields) {
    const value = message[field[0]];
    if (value === undefined || value === null) continue;
    const values = field[3] ? (value as readonly unknown[]) : [value];
    for (const item of values) writeField(writer, field, item, nesting);
  }
  return writer.finish();
}

function writeField(writer: ByteWriter, field: FieldEntry, value: unknown, nesting: number): void {
  const [name, number, type] = field;
  const scalar = encodeScalar(name, type, value);
  if (typeof scalar === "bigint") {
    writer.writeTag(number, WIRE_VARINT);
    writer.writeVarint(scalar);
    return;
  }
  const bytes = scalar ?? encodeMessage(type, value as JsonMessage, nesting + 1);
  writer.writeTag(number, WIRE_LENGTH);
  writer.writeVarint(BigInt(bytes.length));
  writer.writeBytes(bytes);
}

const INTEGER_RANGES: Readonly<Record<string, readonly [least: bigint, greatest: bigint]>> = {
  uint32: [0n, 0xffff_ffffn],
  int32: [-0x8000_0000n, 0x7fff_ffffn],
  uint64: [0n, 0xffff_ffff_ffff_ffffn],
  int64: [-0x8000_0000_0000_0000n, 0x7fff_ffff_ffff_ffffn],
};

/** Returns a number for a varint, bytes for a text, or undefined for a message. */
function encodeScalar(name: string, type: string, value: unknown): bigint | Uint8Array | undefined {
  const values = ENUM_TABLES[type];
  if (values !== undefined) {
    const number = values[String(value)];
    if (number === undefined) throw new RangeError(`${name} has no value ${String(value)}`);
    return BigInt(number);
  }
  if (type === "string") return new TextEncoder().encode(String(value));
  if (type === "bool") return value === true ? 1n : 0n;
  const range = INTEGER_RANGES[type];
  if (range === undefined) {
    if (FIELD_TABLES[type] !== undefined) return undefined;
    throw new RangeError(`${name} has the type ${type}, which requests do not use`);
  }
  const number = BigInt(value as string | number | bigint);
  if (number < range[0] || number > range[1]) throw new RangeError(`${name} is ${number}, beyond ${type}`);
  return number;
}
