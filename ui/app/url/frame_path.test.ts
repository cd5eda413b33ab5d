// Tests of frame paths in links.
import { deflateRawSync } from "node:zlib";
import { expect, test } from "vitest";
import { decodePath, encodePath, MAX_ENCODED_CHARS, MAX_PATH_NAMES, MAX_PLAIN_CHARS } from "./frame_path";
import { SeededRandom } from "./testing/random";

test("path of hostile names survives", () => {
  const random = new SeededRandom(3);
  for (let count = 0; count < 200; count++) {
    const names = [random.hostileText(), ...random.list(40, () => random.hostileText(20))];
    expect(decodePath(encodePath(names))).toEqual(names);
  }
});

test("path of 512 names survives and fits in a link", () => {
  const names = Array.from(
    { length: MAX_PATH_NAMES },
    (_, depth) => `com.example.shop.Checkout$Handler${depth}.handle`,
  );
  const encoded = encodePath(names);
  expect(encoded).toMatch(/^~[\w-]+$/);
  expect(encoded.length).toBeLessThan(8_000);
  expect(decodePath(encoded)).toEqual(names);
});

test("path with names of 10 kB survives", () => {
  const names = Array.from({ length: 100 }, () => "x".repeat(10_000));
  expect(decodePath(encodePath(names))?.join(";") === names.join(";")).toBe(true);
});

test("short path stays readable, also with an empty name", () => {
  expect(encodePath(["main", "a;b", ""])).toBe("main;a\\;b;");
  expect(decodePath("")).toEqual([""]);
  expect(encodePath(["x".repeat(MAX_PLAIN_CHARS)])).toBe("x".repeat(MAX_PLAIN_CHARS));
});

test("path that does not fit keeps the frames near the root", () => {
  const random = new SeededRandom(4);
  const names = Array.from({ length: MAX_PATH_NAMES }, () =>
    Array.from({ length: 200 }, () => String.fromCharCode(33 + random.below(90))).join(""),
  );
  const encoded = encodePath(names);
  expect(encoded.length).toBeLessThanOrEqual(MAX_ENCODED_CHARS);
  const decoded = decodePath(encoded) ?? [];
  expect(decoded.length).toBeGreaterThan(20);
  expect(names.slice(0, decoded.length).join() === decoded.join()).toBe(true);
});

test("damaged and oversized paths are rejected", () => {
  const bomb = `~${deflateRawSync(new Uint8Array(12_000_000)).toString("base64url")}`;
  expect(bomb.length).toBeLessThan(MAX_ENCODED_CHARS);
  expect(decodePath(bomb)).toBeUndefined();
  for (const text of [
    "~",
    "~!!!",
    "~AAAA",
    `~${"A".repeat(MAX_ENCODED_CHARS + 1)}`,
    ";".repeat(MAX_PATH_NAMES),
  ]) {
    expect(decodePath(text)).toBeUndefined();
  }
});
