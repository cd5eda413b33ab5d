// Tests of suggested ranges.
import { beforeAll, expect, test, vi } from "vitest";

const NOW = Date.UTC(2026, 2, 2, 10);
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

beforeAll(() => {
  vi.stubGlobal("location", { pathname: "/ui/", search: "", hostname: "localhost" });
  vi.stubGlobal("document", { baseURI: "http://localhost/ui/" });
  vi.stubGlobal("history", { state: null });
  vi.stubGlobal("fetch", () => new Promise(() => {}));
});

const load = () => import("./stored_data");

test("newest data of another time is one hour before its end", async () => {
  const { newestRange } = await load();
  const newest = NOW - 3 * DAY;
  expect(newestRange({ oldest: undefined, newest }, NOW)).toEqual({
    from: String(newest - HOUR),
    until: String(newest + 1_000),
  });
  expect(newestRange({ oldest: undefined, newest: NOW - 60_000 }, NOW)).toEqual({
    from: "now-1h",
    until: "now",
  });
  expect(newestRange({ oldest: undefined, newest: undefined }, NOW)).toBeUndefined();
});

test("a profile dated 1970 never stretches a range", async () => {
  const { newestRange, storedTimes, wholeRange } = await load();
  const times = storedTimes({
    dataIngested: true,
    oldestProfileTime: "5000",
    newestProfileTime: String(NOW - DAY),
  });
  expect(times.oldest).toBeUndefined();
  expect(wholeRange(times, NOW)).toBeUndefined();
  expect(Number(newestRange(times, NOW)?.from)).toBe(NOW - DAY - HOUR);
  expect(
    storedTimes({ dataIngested: true, oldestProfileTime: "5000", newestProfileTime: "6000" }).newest,
  ).toBeUndefined();
});

test("range of all data ends where the data ends, and is bounded", async () => {
  const { wholeRange } = await load();
  const old = { oldest: NOW - 5 * DAY, newest: NOW - 3 * DAY };
  expect(wholeRange(old, NOW)).toEqual({ from: String(old.oldest), until: String(old.newest + 1_000) });
  expect(wholeRange({ oldest: NOW - 5 * HOUR, newest: NOW }, NOW)).toEqual({ from: "now-5h", until: "now" });
  expect(wholeRange({ oldest: NOW - 400 * DAY, newest: NOW }, NOW)).toBeUndefined();
});
