// Tests of the bounds of tables: texts that share bytes may be much longer than their message.

import { describe, expect, it } from "vitest";
import { MAX_TEXT_BYTES, MessageBudget } from "./message_budget";
import { encodeBytesField, encodeVarints } from "./testing/encode";
import { readTextTable } from "./text_table";

const TEXT_BYTES = 255;

/** Encodes texts with 255 bytes each, in a little more than 4 bytes a text. */
function encodeGrowingTexts(count: number): Uint8Array {
  const column = (first: number, others: number) =>
    encodeVarints([first, ...new Array<number>(count - 1).fill(others)]);
  const fields = [
    encodeBytesField(1, new Uint8Array(TEXT_BYTES + count - 1).fill(0x61)),
    encodeBytesField(2, column(0, TEXT_BYTES - 1)),
    encodeBytesField(3, column(TEXT_BYTES, 1)),
  ];
  return Uint8Array.from(fields.flatMap((field) => [...field]));
}

function countTexts(bytes: Uint8Array, budget: MessageBudget): number {
  return readTextTable(bytes, [{ from: 0, to: bytes.length }], budget, "names").texts.length;
}

describe("readTextTable", () => {
  it("texts_of_all_tables_share_one_bound", () => {
    const bytes = encodeGrowingTexts(1_000);
    const budget = new MessageBudget();
    budget.addTextBytes(MAX_TEXT_BYTES - 2 * 1_000 * TEXT_BYTES);
    expect(countTexts(bytes, budget)).toBe(1_000);
    expect(countTexts(bytes, budget)).toBe(1_000);
    expect(budget.textBytesLeft).toBe(0);
    expect(() => countTexts(bytes, budget)).toThrow(/longer than/);
  });

  it("one_byte_beyond_the_bound_is_rejected", () => {
    const budget = new MessageBudget();
    budget.addTextBytes(MAX_TEXT_BYTES - 1_000 * TEXT_BYTES + 1);
    expect(() => countTexts(encodeGrowingTexts(1_000), budget)).toThrow(/longer than/);
  });
});
