// Tests of the current time.
import { afterEach, beforeEach, expect, test, vi } from "vitest";

const HOUR = 3_600_000;
let listeners: (() => void)[];
let page: { hidden: boolean; addEventListener: (name: string, listener: () => void) => void };

beforeEach(() => {
  vi.resetModules();
  vi.useFakeTimers();
  listeners = [];
  page = { hidden: false, addEventListener: (_name, listener) => listeners.push(listener) };
  vi.stubGlobal("document", page);
});
afterEach(() => vi.useRealTimers());

test("wall clock advances by itself and leaves the time of queries", async () => {
  const { now, refresh, startWallClock, wallClock } = await import("./clock");
  const first = now.value;
  startWallClock();
  vi.advanceTimersByTime(HOUR);
  expect(wallClock.value).toBe(first + HOUR);
  expect(now.value).toBe(first);
  vi.advanceTimersByTime(1_000);
  refresh();
  expect([now.value, wallClock.value]).toEqual([first + HOUR + 1_000, first + HOUR + 1_000]);
});

test("wall clock of a hidden page advances when the page becomes visible", async () => {
  const { startWallClock, wallClock } = await import("./clock");
  const first = wallClock.value;
  startWallClock();
  page.hidden = true;
  vi.advanceTimersByTime(HOUR);
  expect(wallClock.value).toBe(first);
  page.hidden = false;
  for (const listener of listeners) listener();
  expect(wallClock.value).toBe(first + HOUR);
});
