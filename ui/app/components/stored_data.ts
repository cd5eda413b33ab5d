// Times of the data that the server has.
import { computed, type ReadonlySignal } from "@preact/signals";
import { call } from "../api/client";
import { liveQuery } from "../api/live_query";
import type { GetProfileStatsResponse } from "../api/types";
import { view } from "../url/store";
import { formatSpan, storeTime } from "../url/time";

/** Times before this come from profiles without a valid time. They never stretch a suggested range. */
const FIRST_PLAUSIBLE_MS = Date.UTC(2000, 0, 1);
const SUGGESTED_RANGE_MS = 3_600_000;
const MAX_SUGGESTED_RANGE_MS = 30 * 86_400_000;

/** Oldest and newest time of all stored profiles of the tenant. */
export const profileStats = liveQuery(
  () => ({ tenant: view.value.tenant }),
  async ({ tenant }, signal) =>
    (await call("querier.v1.QuerierService/GetProfileStats", {}, { signal, tenant })).message,
);

/** Whether the server has no profile at all; undefined while that is unknown. */
export const isStoreEmpty: ReadonlySignal<boolean | undefined> = computed(() => {
  const stats = profileStats.state.value.value;
  return stats === undefined ? undefined : stats.dataIngested !== true;
});

/** Range that a user may want to open. Times are texts of the view. */
export interface SuggestedRange {
  readonly from: string;
  readonly until: string;
}

export interface StoredTimes {
  readonly oldest: number | undefined;
  readonly newest: number | undefined;
}

/** Returns the plausible ones of the oldest and the newest time. */
export function storedTimes(stats: GetProfileStatsResponse): StoredTimes {
  const plausible = (text: string | undefined) => {
    const ms = Number(text ?? "0");
    return Number.isFinite(ms) && ms >= FIRST_PLAUSIBLE_MS ? ms : undefined;
  };
  return { oldest: plausible(stats.oldestProfileTime), newest: plausible(stats.newestProfileTime) };
}

/** Returns the last hour of data. */
export function newestRange({ newest }: StoredTimes, now: number): SuggestedRange | undefined {
  if (newest === undefined) return undefined;
  if (now - newest >= 0 && now - newest < SUGGESTED_RANGE_MS) return { from: "now-1h", until: "now" };
  // A profile lasts for some time after its timestamp.
  return { from: storeTime(newest - SUGGESTED_RANGE_MS), until: storeTime(newest + 1_000) };
}

/** Returns a range with all data, if that is not too long. */
export function wholeRange({ oldest, newest }: StoredTimes, now: number): SuggestedRange | undefined {
  if (oldest === undefined || newest === undefined || newest - oldest > MAX_SUGGESTED_RANGE_MS)
    return undefined;
  if (newest - oldest <= SUGGESTED_RANGE_MS) return undefined;
  if (Math.abs(now - newest) >= SUGGESTED_RANGE_MS)
    return { from: storeTime(oldest), until: storeTime(newest + 1_000) };
  const hours = Math.ceil((now - oldest) / 3_600_000);
  return { from: `now-${formatSpan(hours * 3_600_000)}`, until: "now" };
}
