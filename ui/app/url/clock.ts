// Current time of relative ranges. It advances only by refreshes, so that one rendering sees one time.
import { batch, type ReadonlySignal, signal } from "@preact/signals";

const currentTime = signal(Date.now());
const refreshCount = signal(0);

/** Age at which the time is no longer used for another query. */
const MAX_AGE_MS = 10_000;

/** Milliseconds since 1970 that `now` means. */
export const now: ReadonlySignal<number> = currentTime;

/** Number of refreshes. Queries run when it grows, even if their range stays the same. */
export const refreshes: ReadonlySignal<number> = refreshCount;

/** Runs all queries, with `now` as the current time. */
export function refresh(): void {
  batch(() => {
    currentTime.value = Date.now();
    refreshCount.value++;
  });
}

/** Lets `now` mean the current time if it is old. */
export function advanceStaleClock(): void {
  if (Date.now() - currentTime.peek() > MAX_AGE_MS) currentTime.value = Date.now();
}
