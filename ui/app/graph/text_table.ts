// Decoder of `athanor.v1.TextTable`: texts that share bytes with the text before.

import type { MessageBudget } from "./message_budget";
import {
  type ByteSpan,
  countVarints,
  FieldReader,
  GraphFormatError,
  readUint32Column,
  WIRE_BYTES,
} from "./wire";

/** Maximum number of bytes that a text shares with the one before. */
const MAX_SHARED_BYTES = 255;

/** Numbers of the fields of `TextTable`. */
const FIELD = { text: 1, shared: 2, rest: 3 } as const;

/** Decoded texts, and the number of bytes that each shares with the one before. */
export interface TextTable {
  readonly texts: string[];
  readonly shared: Uint32Array;
}

interface TableFields {
  readonly text: ByteSpan;
  readonly shared: Uint32Array;
  readonly rest: Uint32Array;
}

/** Decodes the table of a message. A message without the field has no texts. Costs O(bytes of the table and its texts). */
export function readTextTable(
  bytes: Uint8Array,
  spans: readonly ByteSpan[],
  budget: MessageBudget,
  label: string,
): TextTable {
  const span = spans[0];
  if (span === undefined) return { texts: [], shared: new Uint32Array(0) };
  if (spans.length > 1) throw new GraphFormatError(`message has ${spans.length} tables of ${label}`);
  const fields = scanTable(bytes.subarray(0, span.to), span.from, budget, label);
  const starts = startsOfTexts(fields, budget, label);
  return { texts: expandTexts(bytes, fields, starts), shared: fields.shared };
}

function scanTable(bytes: Uint8Array, from: number, budget: MessageBudget, label: string): TableFields {
  const reader = new FieldReader(bytes);
  reader.position = from;
  let text: ByteSpan = { from, to: from };
  const columns: Record<number, ByteSpan[]> = { [FIELD.shared]: [], [FIELD.rest]: [] };
  while (reader.hasMore()) {
    const tag = reader.readUint32();
    const wireType = tag & 7;
    const field = tag >>> 3;
    if (field === 0) throw new GraphFormatError("field number is 0");
    if (field !== FIELD.text && columns[field] === undefined) {
      reader.skipField(wireType);
      continue;
    }
    if (wireType !== WIRE_BYTES) {
      throw new GraphFormatError(
        `field ${field} of ${label} has wire type ${wireType} instead of ${WIRE_BYTES}`,
      );
    }
    budget.addSpan();
    if (field === FIELD.text) text = reader.readSpan();
    else columns[field]?.push(reader.readSpan());
  }
  const sharedSpans = columns[FIELD.shared] as ByteSpan[];
  const count = countVarints(bytes, sharedSpans);
  const shared = readUint32Column(bytes, sharedSpans, count, `shared of ${label}`);
  const rest = readUint32Column(bytes, columns[FIELD.rest] as ByteSpan[], count, `rest of ${label}`);
  return { text, shared, rest };
}

/** Computes the offset of each text and of the end, before anything is allocated for the texts. */
function startsOfTexts(
  { text, shared, rest }: TableFields,
  budget: MessageBudget,
  label: string,
): Uint32Array {
  const starts = new Uint32Array(shared.length + 1);
  let left = text.to - text.from;
  const limit = budget.textBytesLeft;
  let before = 0;
  let start = 0;
  for (let index = 0; index < shared.length; index++) {
    const common = shared[index] as number;
    const own = rest[index] as number;
    if (common > before || common > MAX_SHARED_BYTES || own > left) {
      throw new GraphFormatError(
        `text ${index} of ${label} shares ${common} of ${before} bytes and has ${own} of ${left} others`,
      );
    }
    left -= own;
    before = common + own;
    start += before;
    if (start > limit) break;
    starts[index + 1] = start;
  }
  budget.addTextBytes(start);
  if (left > 0) throw new GraphFormatError(`${left} bytes follow the last text of ${label}`);
  return starts;
}

/** Joins the texts. Those of ASCII are slices of one decoded stretch, which is much cheaper than one call each. */
function expandTexts(bytes: Uint8Array, { text, shared, rest }: TableFields, starts: Uint32Array): string[] {
  const count = shared.length;
  const expanded = new Uint8Array(starts[count] as number);
  const isAscii = new Uint8Array(count);
  let source = text.from;
  let target = 0;
  let previous = 0;
  for (let index = 0; index < count; index++) {
    const start = target;
    let bits = 0;
    for (let left = shared[index] as number; left > 0; left--) {
      const byte = expanded[previous++] as number;
      bits |= byte;
      expanded[target++] = byte;
    }
    for (let left = rest[index] as number; left > 0; left--) {
      const byte = bytes[source++] as number;
      bits |= byte;
      expanded[target++] = byte;
    }
    isAscii[index] = bits < 0x80 ? 1 : 0;
    previous = start;
  }
  const stretch = new TextDecoder("latin1").decode(expanded);
  const utf8 = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
  const texts = new Array<string>(count);
  for (let index = 0; index < count; index++) {
    const start = starts[index] as number;
    const end = starts[index + 1] as number;
    texts[index] =
      isAscii[index] === 1 ? stretch.slice(start, end) : decodeUtf8(utf8, expanded.subarray(start, end));
  }
  return texts;
}

function decodeUtf8(decoder: TextDecoder, bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    throw new GraphFormatError("text is not UTF-8");
  }
}
