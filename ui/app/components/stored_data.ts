// Times of the data that the server has.
import { computed, type ReadonlySignal } from "@preact/signals";
import { call } from "../api/client";
import { liveQuery } from "../api/live_query";
import type { GetProfileStatsResponse } from "../api/types";
import { timeRangeOf } from "../url/query_of";
import { view } from "../url/store";
import { formatSpan, storeTime } from "../url/time";
import type { ViewState } from "../url/view_state";

/** Times before this come from profiles without a valid time. They never stretch a suggested range. */
const FIRST_PLAUSIBLE_MS = Date.UTC(2000, 0, 1);
const SUGGESTED_RANGE_MS = 3_600_000;
const MAX_SUGGESTED_RANGE_MS = 30 * 86_400_000;

/** Times of the stored profiles. The server leaves out profiles without a plausible time. */
export interface StoreStats extends GetProfileStatsResponse {
  /** Whether the only profiles are those without a plausible time. */
  readonly hasOnlyUndated: boolean;
}

/** Oldest and newest time of all stored profiles of the tenant. */
export const profileStats = liveQuery(
  () => ({ tenant: view.value.tenant }),
  async ({ tenant }, signal): Promise<StoreStats> => {
    const { message } = await call("querier.v1.QuerierService/GetProfileStats", {}, { signal, tenant });
    const hasOnlyUndated = message.dataIngested !== true && (await hasUndatedProfiles(tenant, signal));
    return { ...message, hasOnlyUndated };
  },
);

/** Returns whether a profile lacks a plausible time; the last result if the call fails, so that the times are shown. */
async function hasUndatedProfiles(tenant: string, signal: AbortSignal): Promise<boolean> {
  const range = { start: "1", end: String(FIRST_PLAUSIBLE_MS) };
  try {
    const { message } = await call("querier.v1.QuerierService/ProfileTypes", range, { signal, tenant });
    return (message.profileTypes ?? []).length > 0;
  } catch {
    return profileStats.state.peek().value?.hasOnlyUndated ?? false;
  }
}

/** Whether the server has a profile with a plausible time; undefined while that is unknown. */
export const hasDatedProfiles: ReadonlySignal<boolean | undefined> = computed(() => {
  const stats = profileStats.state.value.value;
  return stats === undefined ? undefined : stats.dataIngested === true;
});

/** Whether the server has no profile at all; undefined while that is unknown. */
export const isStoreEmpty: ReadonlySignal<boolean | undefined> = computed(() => {
  const stats = profileStats.state.value.value;
  return stats === undefined ? undefined : stats.dataIngested !== true && !stats.hasOnlyUndated;
});

/** Whether the newest profile of the tenant is in the range of the view. */
export const isNewestInRange: ReadonlySignal<boolean> = computed(() => {
  const stats = profileStats.state.value.value;
  const newest = stats === undefined ? undefined : storedTimes(stats).newest;
  const { start, end } = timeRangeOf(view.value);
  return newest !== undefined && newest >= start && newest <= end;
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

/** Selection whose newest profile is wanted. */
export interface StoredSelection {
  readonly tenant: string;
  readonly profileType: string;
  readonly selector: string;
  readonly oldest: number;
  readonly newest: number;
}

/** Points of each search for the newest profile. The second one divides the last step of the first one. */
const SEARCH_POINTS = 240;
const MAX_SEARCHED_MS = 366 * 86_400_000;

/** Returns the selection of a view over all stored times, or undefined if they are unknown. */
export function storedSelection(
  { tenant, profileType, selector }: ViewState,
  { oldest, newest }: StoredTimes,
): StoredSelection | undefined {
  if (newest === undefined || profileType === "") return undefined;
  const first = newest - MAX_SEARCHED_MS;
  return { tenant, profileType, selector, oldest: Math.max(oldest ?? first, first), newest };
}

/** Returns the end of a short step with the newest profile of a selection, or undefined without one. */
export async function findNewest(
  selection: StoredSelection,
  signal: AbortSignal,
): Promise<number | undefined> {
  let { oldest: start, newest: end } = selection;
  for (const _search of ["whole span", "last step"]) {
    const step = Math.max(1, Math.ceil((end - start) / SEARCH_POINTS / 1_000)) * 1_000;
    const request = {
      profileTypeID: selection.profileType,
      labelSelector: selection.selector,
      start: String(end - Math.ceil((end - start) / step) * step),
      end: String(end),
      step: step / 1_000,
    };
    const options = { signal, tenant: selection.tenant };
    const { message } = await call("querier.v1.QuerierService/SelectSeries", request, options);
    const last = message.series?.[0]?.points?.at(-1)?.timestamp;
    if (last === undefined) return undefined;
    end = Number(last);
    start = end - step;
  }
  return end;
}
