// Current time of relative ranges. It advances only by refreshes, so that one rendering sees one time.
import { type ReadonlySignal, signal } from "@preact/signals";

const currentTime = signal(Date.now());

/** Milliseconds since 1970 that `now` means. */
export const now: ReadonlySignal<number> = currentTime;

/** Lets `now` mean the current time. Queries whose range thereby changes run. */
export function advanceClock(): void {
  currentTime.value = Date.now();
}
