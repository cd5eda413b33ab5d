// Reader of protobuf bytes: fields, packed varints and texts, checked against every length.

/** Bytes of a graph that break its format. */
export class GraphFormatError extends Error {
  override readonly name = "GraphFormatError";
}

/** Part of the message: index of the first byte, index after the last. */
export interface ByteSpan {
  readonly from: number;
  readonly to: number;
}

export const WIRE_VARINT = 0;
export const WIRE_FIXED64 = 1;
export const WIRE_BYTES = 2;
export const WIRE_FIXED32 = 5;

const MAX_VARINT_BYTES = 10;
const LOW_BITS = 2 ** 28;
const TOP_BITS = 2 ** 56;

/** Cursor over the fields of one message. */
export class FieldReader {
  readonly bytes: Uint8Array;
  position = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  hasMore(): boolean {
    return this.position < this.bytes.length;
  }

  /** Reads a varint of up to 64 bits. */
  readVarint(): bigint {
    let value = 0n;
    for (let index = 0; index < MAX_VARINT_BYTES; index++) {
      const byte = this.bytes[this.position++];
      if (byte === undefined) throw new GraphFormatError("varint ends after the last byte");
      value |= BigInt(byte & 0x7f) << BigInt(7 * index);
      if (byte < 0x80) return BigInt.asUintN(64, value);
    }
    throw new GraphFormatError(`varint is longer than ${MAX_VARINT_BYTES} bytes`);
  }

  /** Reads a varint of up to 32 bits, such as a tag or a length. */
  readUint32(): number {
    let value = 0;
    for (let index = 0; index < 5; index++) {
      const byte = this.bytes[this.position++];
      if (byte === undefined) throw new GraphFormatError("varint ends after the last byte");
      value += (byte & 0x7f) * 2 ** (7 * index);
      if (byte >= 0x80) continue;
      if (value > 0xffff_ffff) break;
      return value;
    }
    throw new GraphFormatError("varint of a tag or a length is longer than 32 bits");
  }

  /** Reads the span of a length-delimited field. */
  readSpan(): ByteSpan {
    const length = this.readUint32();
    const from = this.position;
    const to = from + length;
    if (to > this.bytes.length) {
      throw new GraphFormatError(`field of ${length} bytes, but ${this.bytes.length - from} are left`);
    }
    this.position = to;
    return { from, to };
  }

  skipField(wireType: number): void {
    if (wireType === WIRE_VARINT) this.readVarint();
    else if (wireType === WIRE_BYTES) this.readSpan();
    else if (wireType === WIRE_FIXED64) this.skipBytes(8);
    else if (wireType === WIRE_FIXED32) this.skipBytes(4);
    else throw new GraphFormatError(`wire type ${wireType} is unknown`);
  }

  private skipBytes(count: number): void {
    if (this.position + count > this.bytes.length) {
      throw new GraphFormatError("fixed field ends after the last byte");
    }
    this.position += count;
  }
}

/** Counts the varints of packed spans: the bytes that end one. */
export function countVarints(bytes: Uint8Array, spans: readonly ByteSpan[]): number {
  let count = 0;
  for (const { from, to } of spans) {
    for (let position = from; position < to; position++) count += 1 - ((bytes[position] as number) >>> 7);
  }
  return count;
}

/** Checks before anything is allocated that the spans have bytes enough for a number of varints. */
function requireBytes(spans: readonly ByteSpan[], count: number, column: string): void {
  let length = 0;
  for (const { from, to } of spans) length += to - from;
  if (length < count) throw new GraphFormatError(`column ${column} has ${length} bytes for ${count} entries`);
}

/** Checks that the last varint of a span ends within it, so that loops over varints need no further check. */
function requireTerminated(bytes: Uint8Array, span: ByteSpan, column: string): void {
  if (span.to > span.from && (bytes[span.to - 1] as number) >= 0x80) {
    throw new GraphFormatError(`last varint of column ${column} is not terminated`);
  }
}

function requireCount(found: number, count: number, column: string): void {
  if (found !== count) {
    throw new GraphFormatError(`column ${column} has ${found} entries instead of ${count}`);
  }
}

/** Decodes a packed column of uint32. */
export function readUint32Column(
  bytes: Uint8Array,
  spans: readonly ByteSpan[],
  count: number,
  column: string,
): Uint32Array {
  requireBytes(spans, count, column);
  // Writes beyond the end of a typed array have no effect, so the count is checked once, at the end.
  const values = new Uint32Array(count);
  let index = 0;
  for (const span of spans) {
    requireTerminated(bytes, span, column);
    const { to } = span;
    let position = span.from;
    while (position < to) {
      let byte = bytes[position++] as number;
      let value = byte & 0x7f;
      if (byte >= 0x80) {
        byte = bytes[position++] as number;
        value |= (byte & 0x7f) << 7;
        if (byte >= 0x80) {
          byte = bytes[position++] as number;
          value |= (byte & 0x7f) << 14;
        }
      }
      if (byte >= 0x80) {
        position -= 3;
        value = readLongUint32(bytes, position, column);
        while ((bytes[position++] as number) >= 0x80);
      }
      values[index++] = value;
    }
  }
  requireCount(index, count, column);
  return values;
}

function readLongUint32(bytes: Uint8Array, from: number, column: string): number {
  let value = 0;
  let scale = 1;
  for (let position = from; ; position++) {
    const byte = bytes[position] as number;
    value += (byte & 0x7f) * scale;
    if (byte < 0x80) break;
    scale *= 128;
    if (scale > LOW_BITS * 128) break;
  }
  if (value > 0xffff_ffff || scale > LOW_BITS) {
    throw new GraphFormatError(`an entry of column ${column} is longer than 32 bits`);
  }
  return value;
}

/**
 * Decodes a packed column of sint64 (zigzag), none of them 0, and stores entry i in `values` at `targets[i]`. Returns the
 * sum of the magnitudes. Up to 2^53, the column and all its partial sums are exact.
 */
export function scatterSignedColumn(
  bytes: Uint8Array,
  spans: readonly ByteSpan[],
  targets: Uint32Array,
  values: Float64Array,
  column: string,
): number {
  requireBytes(spans, targets.length, column);
  let magnitude = 0;
  let index = 0;
  for (const span of spans) {
    requireTerminated(bytes, span, column);
    const { to } = span;
    let position = span.from;
    while (position < to) {
      let byte = bytes[position++] as number;
      let bits = byte & 0x7f;
      if (byte >= 0x80) {
        byte = bytes[position++] as number;
        bits |= (byte & 0x7f) << 7;
        if (byte >= 0x80) {
          byte = bytes[position++] as number;
          bits |= (byte & 0x7f) << 14;
        }
      }
      let value = (bits >>> 1) ^ -(bits & 1);
      if (byte >= 0x80) {
        const start = position - 3;
        while ((bytes[position++] as number) >= 0x80);
        value = readZigzag(bytes, start, position, column);
      }
      if (value === 0) throw new GraphFormatError(`entry ${index} of column ${column} is 0`);
      // Entries beyond the targets have none and are counted below.
      values[targets[index++] as number] = value;
      magnitude += value < 0 ? -value : value;
    }
  }
  requireCount(index, targets.length, column);
  return magnitude;
}

function readZigzag(bytes: Uint8Array, from: number, to: number, column: string): number {
  if (to - from > MAX_VARINT_BYTES || (to - from === MAX_VARINT_BYTES && (bytes[to - 1] as number) > 1)) {
    throw new GraphFormatError(`an entry of column ${column} is longer than 64 bits`);
  }
  let low = 0;
  let middle = 0;
  let top = 0;
  for (let index = 0; index < to - from; index++) {
    const bits = (bytes[from + index] as number) & 0x7f;
    if (index < 4) low |= bits << (7 * index);
    else if (index < 8) middle |= bits << (7 * (index - 4));
    else top |= bits << (7 * (index - 8));
  }
  const sign = low & 1;
  const half = (low >>> 1) + middle * (LOW_BITS / 2) + top * (TOP_BITS / 2);
  return sign === 0 ? half : -half - 1;
}

/** Decodes a packed column of sint64 without rounding. */
export function readExactColumn(bytes: Uint8Array, spans: readonly ByteSpan[], count: number): BigInt64Array {
  const values = new BigInt64Array(count);
  const reader = new FieldReader(bytes);
  let index = 0;
  for (const span of spans) {
    reader.position = span.from;
    while (reader.position < span.to) {
      const zigzag = reader.readVarint();
      values[index++] = (zigzag >> 1n) ^ -(zigzag & 1n);
    }
  }
  return values;
}
