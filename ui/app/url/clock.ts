// Current time of relative ranges, which advances only by refreshes so that one rendering sees one time, and of ages.
import { batch, type ReadonlySignal, signal } from "@preact/signals";

const currentTime = signal(Date.now());
const ageTime = signal(Date.now());
const refreshCount = signal(0);

/** Age at which the time is no longer used for another query. */
const MAX_AGE_MS = 10_000;
const WALL_CLOCK_INTERVAL_MS = 10_000;

/** Milliseconds since 1970 that `now` means. */
export const now: ReadonlySignal<number> = currentTime;

/** Milliseconds since 1970 from which ages are measured. Unlike `now`, it advances by itself and runs no query. */
export const wallClock: ReadonlySignal<number> = ageTime;

/** Number of refreshes. Queries run when it grows, even if their range stays the same. */
export const refreshes: ReadonlySignal<number> = refreshCount;

/** Runs all queries, with `now` as the current time. */
export function refresh(): void {
  batch(() => {
    advanceClocks();
    refreshCount.value++;
  });
}

function advanceClocks(): void {
  const milliseconds = Date.now();
  batch(() => {
    currentTime.value = milliseconds;
    ageTime.value = milliseconds;
  });
}

/** Lets `now` mean the current time if it is old. */
export function advanceStaleClock(): void {
  if (Date.now() - currentTime.peek() > MAX_AGE_MS) advanceClocks();
}

/** Begins to advance the wall clock while the page is visible, and at once when it becomes visible. */
export function startWallClock(): void {
  const advanceIfVisible = () => {
    if (!document.hidden) ageTime.value = Date.now();
  };
  setInterval(advanceIfVisible, WALL_CLOCK_INTERVAL_MS);
  document.addEventListener("visibilitychange", advanceIfVisible);
}
