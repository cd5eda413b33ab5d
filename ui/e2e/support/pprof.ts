// Encoder of pprof profiles with files, lines, binaries and labels.

/** Frame of a stack. */
export interface PprofFrame {
  readonly name: string;
  readonly file?: string;
  readonly line?: number;
  readonly binary?: string;
}

export interface PprofSample {
  /** Frames from the root to the leaf. */
  readonly stack: readonly PprofFrame[];
  readonly value: bigint;
  readonly labels?: Readonly<Record<string, string>>;
}

export interface PprofProfile {
  readonly type: readonly [kind: string, unit: string];
  readonly periodType: readonly [kind: string, unit: string];
  readonly period: bigint;
  readonly timeMs: number;
  readonly durationMs: number;
  readonly samples: readonly PprofSample[];
}

/** Growing message of protobuf. */
class MessageWriter {
  private readonly parts: number[] = [];

  varint(field: number, value: bigint | number): this {
    this.raw((BigInt(field) << 3n) | 0n);
    this.raw(BigInt.asUintN(64, BigInt(value)));
    return this;
  }

  bytes(field: number, bytes: Uint8Array): this {
    this.raw((BigInt(field) << 3n) | 2n);
    this.raw(BigInt(bytes.length));
    for (const byte of bytes) this.parts.push(byte);
    return this;
  }

  message(field: number, message: MessageWriter): this {
    return this.bytes(field, message.finish());
  }

  finish(): Uint8Array {
    return Uint8Array.from(this.parts);
  }

  private raw(value: bigint): void {
    let rest = value;
    while (rest >= 0x80n) {
      this.parts.push(Number(rest & 0x7fn) | 0x80);
      rest >>= 7n;
    }
    this.parts.push(Number(rest));
  }
}

/** Numbers each different key, from a first number. */
class Numbering {
  readonly keys: string[] = [];
  private readonly numbers = new Map<string, number>();

  constructor(private readonly first: number) {}

  of(key: string): number {
    let number = this.numbers.get(key);
    if (number === undefined) {
      number = this.keys.length + this.first;
      this.numbers.set(key, number);
      this.keys.push(key);
    }
    return number;
  }
}

const FIELD_SEPARATOR = "\u0000";

/** Returns a profile as pprof without compression. */
export function encodePprof(profile: PprofProfile): Uint8Array {
  const texts = new Numbering(0);
  texts.of("");
  const locations = new Numbering(1);
  const functions = new Numbering(1);
  const mappings = new Numbering(1);
  const writer = new MessageWriter();
  const valueType = ([kind, unit]: readonly [string, string]) =>
    new MessageWriter().varint(1, texts.of(kind)).varint(2, texts.of(unit));
  writer.message(1, valueType(profile.type));
  for (const { stack, value, labels = {} } of profile.samples) {
    const sample = new MessageWriter();
    for (const frame of [...stack].reverse()) {
      const { name, file = "", line = 0, binary = "" } = frame;
      sample.varint(1, locations.of([name, file, line, binary].join(FIELD_SEPARATOR)));
    }
    sample.varint(2, value);
    for (const [key, text] of Object.entries(labels)) {
      sample.message(3, new MessageWriter().varint(1, texts.of(key)).varint(2, texts.of(text)));
    }
    writer.message(2, sample);
  }
  locations.keys.forEach((key, index) => {
    const [name = "", file = "", line = "0", binary = ""] = key.split(FIELD_SEPARATOR);
    const functionId = functions.of([name, file, line].join(FIELD_SEPARATOR));
    const lineMessage = new MessageWriter().varint(1, functionId).varint(2, BigInt(line));
    const location = new MessageWriter().varint(1, index + 1);
    if (binary !== "") location.varint(2, mappings.of(binary));
    writer.message(4, location.message(4, lineMessage));
  });
  mappings.keys.forEach((binary, index) => {
    const mapping = new MessageWriter().varint(1, index + 1).varint(2, 0x1000n * BigInt(index + 1));
    mapping
      .varint(3, 0x1000n * BigInt(index + 2))
      .varint(5, texts.of(binary))
      .varint(7, 1);
    writer.message(3, mapping);
  });
  functions.keys.forEach((key, index) => {
    const [name = "", file = "", line = "0"] = key.split(FIELD_SEPARATOR);
    const fields = new MessageWriter().varint(1, index + 1).varint(2, texts.of(name));
    writer.message(5, fields.varint(3, texts.of(name)).varint(4, texts.of(file)).varint(5, BigInt(line)));
  });
  writer.varint(9, BigInt(profile.timeMs) * 1_000_000n).varint(10, BigInt(profile.durationMs) * 1_000_000n);
  writer.message(11, valueType(profile.periodType)).varint(12, profile.period);
  const encoder = new TextEncoder();
  for (const text of texts.keys) writer.bytes(6, encoder.encode(text));
  return writer.finish();
}
