// Deflate of short texts, synchronous so that links can be made while a page renders. CompressionStream is asynchronous.

const MIN_MATCH_BYTES = 3;
const MAX_MATCH_BYTES = 258;
const WINDOW_BYTES = 32_768;
const HASH_BITS = 15;
const MAX_CHAIN_STEPS = 64;
const END_OF_BLOCK = 256;
const MAX_CODE_BITS = 15;

const LENGTH_BASES = [
  3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
  227, 258,
];
const LENGTH_EXTRA_BITS = [
  0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0,
];
const DISTANCE_BASES = [
  1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097,
  6145, 8193, 12289, 16385, 24577,
];
const DISTANCE_EXTRA_BITS = [
  0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13,
];
const CODE_LENGTH_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

class BitWriter {
  private readonly bytes: number[] = [];
  private bits = 0;
  private bitCount = 0;

  /** Appends the lowest bits of a value, the lowest first. */
  write(value: number, count: number): void {
    this.bits |= value << this.bitCount;
    this.bitCount += count;
    while (this.bitCount >= 8) {
      this.bytes.push(this.bits & 0xff);
      this.bits >>>= 8;
      this.bitCount -= 8;
    }
  }

  /** Appends a Huffman code, the highest bit first. */
  writeCode(code: number, count: number): void {
    for (let bit = count - 1; bit >= 0; bit--) this.write((code >>> bit) & 1, 1);
  }

  finish(): Uint8Array {
    if (this.bitCount > 0) this.bytes.push(this.bits & 0xff);
    return Uint8Array.from(this.bytes);
  }
}

/** Compresses with the fixed Huffman codes of raw deflate (RFC 1951). */
export function deflate(input: Uint8Array): Uint8Array {
  const writer = new BitWriter();
  writer.write(1, 1);
  writer.write(1, 2);
  const heads = new Int32Array(1 << HASH_BITS).fill(-1);
  const previous = new Int32Array(input.length);
  let position = 0;
  while (position < input.length) {
    const match = findMatch(input, position, heads, previous);
    const step = Math.max(match.length, 1);
    if (match.length === 0) writeFixedLiteral(writer, input[position] ?? 0);
    else writeFixedMatch(writer, match.length, match.distance);
    for (let offset = 0; offset < step; offset++) insertHash(input, position + offset, heads, previous);
    position += step;
  }
  writeFixedLiteral(writer, END_OF_BLOCK);
  return writer.finish();
}

function hashOf(input: Uint8Array, position: number): number {
  const value =
    ((input[position] ?? 0) << 16) | ((input[position + 1] ?? 0) << 8) | (input[position + 2] ?? 0);
  return Math.imul(value, 0x9e3779b1) >>> (32 - HASH_BITS);
}

function insertHash(input: Uint8Array, position: number, heads: Int32Array, previous: Int32Array): void {
  const hash = hashOf(input, position);
  previous[position] = heads[hash] ?? -1;
  heads[hash] = position;
}

function findMatch(input: Uint8Array, position: number, heads: Int32Array, previous: Int32Array) {
  let best = { length: 0, distance: 0 };
  const limit = Math.min(MAX_MATCH_BYTES, input.length - position);
  if (limit < MIN_MATCH_BYTES) return best;
  let candidate = heads[hashOf(input, position)] ?? -1;
  for (let steps = 0; candidate >= 0 && steps < MAX_CHAIN_STEPS; steps++) {
    if (position - candidate > WINDOW_BYTES) break;
    let length = 0;
    while (length < limit && input[candidate + length] === input[position + length]) length++;
    if (length >= MIN_MATCH_BYTES && length > best.length) best = { length, distance: position - candidate };
    if (length === limit) break;
    candidate = previous[candidate] ?? -1;
  }
  return best;
}

function writeFixedLiteral(writer: BitWriter, symbol: number): void {
  if (symbol < 144) writer.writeCode(0x30 + symbol, 8);
  else if (symbol < 256) writer.writeCode(0x190 + symbol - 144, 9);
  else if (symbol < 280) writer.writeCode(symbol - 256, 7);
  else writer.writeCode(0xc0 + symbol - 280, 8);
}

function lastIndexAtMost(bases: readonly number[], value: number): number {
  let index = bases.length - 1;
  while ((bases[index] ?? 0) > value) index--;
  return index;
}

function writeFixedMatch(writer: BitWriter, length: number, distance: number): void {
  const lengthIndex = lastIndexAtMost(LENGTH_BASES, length);
  writeFixedLiteral(writer, 257 + lengthIndex);
  writer.write(length - (LENGTH_BASES[lengthIndex] ?? 0), LENGTH_EXTRA_BITS[lengthIndex] ?? 0);
  const distanceIndex = lastIndexAtMost(DISTANCE_BASES, distance);
  writer.writeCode(distanceIndex, 5);
  writer.write(distance - (DISTANCE_BASES[distanceIndex] ?? 0), DISTANCE_EXTRA_BITS[distanceIndex] ?? 0);
}

class BitReader {
  private position = 0;

  constructor(private readonly bytes: Uint8Array) {}

  read(count: number): number {
    let value = 0;
    for (let bit = 0; bit < count; bit++) value |= this.readBit() << bit;
    return value;
  }

  readBit(): number {
    const byte = this.bytes[this.position >> 3];
    if (byte === undefined) throw new RangeError("compressed text ends early");
    return (byte >> (this.position++ & 7)) & 1;
  }

  alignToByte(): void {
    this.position = (this.position + 7) & ~7;
  }
}

/** Canonical Huffman code: number of codes of each length, and symbols in order of their codes. */
interface HuffmanCode {
  readonly counts: Uint16Array;
  readonly symbols: Uint16Array;
}

function buildCode(lengths: readonly number[]): HuffmanCode {
  const counts = new Uint16Array(MAX_CODE_BITS + 1);
  for (const length of lengths) counts[length] = (counts[length] ?? 0) + 1;
  counts[0] = 0;
  const offsets = new Uint16Array(MAX_CODE_BITS + 2);
  for (let bits = 1; bits <= MAX_CODE_BITS; bits++)
    offsets[bits + 1] = (offsets[bits] ?? 0) + (counts[bits] ?? 0);
  const symbols = new Uint16Array(lengths.length);
  lengths.forEach((length, symbol) => {
    if (length === 0) return;
    const offset = offsets[length] ?? 0;
    symbols[offset] = symbol;
    offsets[length] = offset + 1;
  });
  return { counts, symbols };
}

function readSymbol(reader: BitReader, code: HuffmanCode): number {
  let value = 0;
  let first = 0;
  let index = 0;
  for (let bits = 1; bits <= MAX_CODE_BITS; bits++) {
    value |= reader.readBit();
    const count = code.counts[bits] ?? 0;
    if (value - count < first) return code.symbols[index + (value - first)] ?? 0;
    index += count;
    first = (first + count) << 1;
    value <<= 1;
  }
  throw new RangeError("compressed text has an invalid code");
}

const FIXED_LITERALS = buildCode(
  Array.from({ length: 288 }, (_, symbol) => (symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8)),
);
const FIXED_DISTANCES = buildCode(new Array<number>(30).fill(5));

class BoundedOutput {
  private bytes = new Uint8Array(1024);
  length = 0;

  constructor(private readonly maxBytes: number) {}

  push(byte: number): void {
    if (this.length >= this.maxBytes)
      throw new RangeError(`compressed text is longer than ${this.maxBytes} bytes`);
    if (this.length === this.bytes.length) {
      const grown = new Uint8Array(Math.min(this.bytes.length * 2, this.maxBytes));
      grown.set(this.bytes);
      this.bytes = grown;
    }
    this.bytes[this.length++] = byte;
  }

  copy(distance: number, length: number): void {
    if (distance > this.length) throw new RangeError("compressed text refers to bytes before its beginning");
    for (let count = 0; count < length; count++) this.push(this.bytes[this.length - distance] ?? 0);
  }

  finish(): Uint8Array {
    return this.bytes.slice(0, this.length);
  }
}

/** Decompresses raw deflate. Throws a RangeError if the input is invalid or the output has more than `maxBytes`. */
export function inflate(input: Uint8Array, maxBytes: number): Uint8Array {
  const reader = new BitReader(input);
  const output = new BoundedOutput(maxBytes);
  for (let isLast = false; !isLast; ) {
    isLast = reader.readBit() === 1;
    const type = reader.read(2);
    if (type === 0) inflateStored(reader, output);
    else if (type === 1) inflateBlock(reader, output, FIXED_LITERALS, FIXED_DISTANCES);
    else if (type === 2) {
      const codes = readDynamicCodes(reader);
      inflateBlock(reader, output, codes.literals, codes.distances);
    } else throw new RangeError("compressed text has an invalid block");
  }
  return output.finish();
}

function inflateStored(reader: BitReader, output: BoundedOutput): void {
  reader.alignToByte();
  const length = reader.read(16);
  if ((reader.read(16) ^ length) !== 0xffff)
    throw new RangeError("compressed text has an invalid block length");
  for (let count = 0; count < length; count++) output.push(reader.read(8));
}

function inflateBlock(
  reader: BitReader,
  output: BoundedOutput,
  literals: HuffmanCode,
  distances: HuffmanCode,
): void {
  for (
    let symbol = readSymbol(reader, literals);
    symbol !== END_OF_BLOCK;
    symbol = readSymbol(reader, literals)
  ) {
    if (symbol < END_OF_BLOCK) {
      output.push(symbol);
      continue;
    }
    const length = readExtended(reader, symbol - 257, LENGTH_BASES, LENGTH_EXTRA_BITS);
    const distance = readExtended(reader, readSymbol(reader, distances), DISTANCE_BASES, DISTANCE_EXTRA_BITS);
    output.copy(distance, length);
  }
}

function readExtended(
  reader: BitReader,
  index: number,
  bases: readonly number[],
  extraBits: readonly number[],
): number {
  const base = bases[index];
  if (base === undefined) throw new RangeError("compressed text has an invalid length or distance");
  return base + reader.read(extraBits[index] ?? 0);
}

function readDynamicCodes(reader: BitReader): { literals: HuffmanCode; distances: HuffmanCode } {
  const literalCount = reader.read(5) + 257;
  const distanceCount = reader.read(5) + 1;
  const orderCount = reader.read(4) + 4;
  const orderLengths = new Array<number>(CODE_LENGTH_ORDER.length).fill(0);
  for (const symbol of CODE_LENGTH_ORDER.slice(0, orderCount)) orderLengths[symbol] = reader.read(3);
  const orderCode = buildCode(orderLengths);
  const lengths: number[] = [];
  while (lengths.length < literalCount + distanceCount) {
    const symbol = readSymbol(reader, orderCode);
    if (symbol < 16) lengths.push(symbol);
    else if (symbol === 16) pushCopies(lengths, lengths.at(-1) ?? 0, 3 + reader.read(2));
    else pushCopies(lengths, 0, symbol === 17 ? 3 + reader.read(3) : 11 + reader.read(7));
  }
  return {
    literals: buildCode(lengths.slice(0, literalCount)),
    distances: buildCode(lengths.slice(literalCount, literalCount + distanceCount)),
  };
}

function pushCopies(lengths: number[], value: number, count: number): void {
  for (let index = 0; index < count; index++) lengths.push(value);
}
