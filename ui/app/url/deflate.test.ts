// Tests of deflate against zlib.
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { expect, test } from "vitest";
import { deflate, inflate } from "./deflate";
import { SeededRandom } from "./testing/random";

const MAX_BYTES = 1_000_000;
const toText = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

function sampleTexts(): Uint8Array[] {
  const random = new SeededRandom(1);
  const texts = ["", "a", "a".repeat(100_000), "abc".repeat(500)];
  for (let count = 0; count < 40; count++) texts.push(random.list(300, () => random.hostileText()).join(""));
  const noise = Uint8Array.from({ length: 5_000 }, () => random.below(256));
  return [...texts.map((text) => new TextEncoder().encode(text)), noise];
}

test("zlib reads what deflate writes", () => {
  for (const bytes of sampleTexts()) {
    expect(toText(inflateRawSync(deflate(bytes)))).toBe(toText(bytes));
  }
});

test("inflate reads all block types of zlib", () => {
  for (const bytes of sampleTexts()) {
    for (const options of [{ level: 9 }, { level: 0 }, { level: 6, strategy: 4 }]) {
      expect(toText(inflate(deflateRawSync(bytes, options), MAX_BYTES))).toBe(toText(bytes));
    }
  }
});

test("deflate compresses repeated names well", () => {
  const text = Array.from({ length: 512 }, (_, depth) => `github.com/shop/checkout.handler${depth % 7}`).join(
    ";",
  );
  expect(deflate(new TextEncoder().encode(text)).length).toBeLessThan(text.length / 10);
});

test("decompression bomb is rejected at its limit", () => {
  const bomb = deflateRawSync(new Uint8Array(50_000_000));
  expect(bomb.length).toBeLessThan(60_000);
  expect(() => inflate(bomb, MAX_BYTES)).toThrow(RangeError);
});

test("damaged input is rejected or ends, and never hangs", () => {
  const random = new SeededRandom(2);
  const valid = deflateRawSync(new TextEncoder().encode("main;work;".repeat(50)));
  for (let count = 0; count < 1_000; count++) {
    const bytes =
      count % 2 === 0 ? Uint8Array.from(valid) : Uint8Array.from({ length: 40 }, () => random.below(256));
    bytes[random.below(bytes.length)] = random.below(256);
    try {
      expect(inflate(bytes, 10_000).length).toBeLessThanOrEqual(10_000);
    } catch (error) {
      expect(error).toBeInstanceOf(RangeError);
    }
  }
});
