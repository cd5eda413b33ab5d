// Calls of the timeline: all profiles, the largest groups, and for gauges the rest.

import { call } from "../../api/client";
import { liveQuery } from "../../api/live_query";
import { isGauge } from "../../theme/cost";
import { timeRangeOf } from "../../url/query_of";
import { view } from "../../url/store";
import type { ViewState } from "../../url/view_state";
import {
  alignSeries,
  MAX_TIMELINE_GROUPS,
  mergeSteps,
  otherSelector,
  otherSeries,
  seriesRequest,
  stepFactor,
  type TimelineData,
  type TimelineQuery,
  type TimelineSeries,
  timesOf,
} from "./series_data";

export interface TimelineResult extends TimelineData {
  readonly warnings: readonly string[];
  readonly query: TimelineQuery;
  /** All profiles together, in steps of the query. */
  readonly all: TimelineSeries;
}

interface TenantQuery extends TimelineQuery {
  readonly tenant: string;
}

/** Returns the query of the timeline, or undefined while the view has no profile type. */
export function timelineQueryOf(state: ViewState): TenantQuery | undefined {
  if (state.page !== "explore" || state.profileType === "") return undefined;
  const { profileType, selector, groupBy, tenant } = state;
  return { profileType, selector, groupBy, tenant, range: timeRangeOf(state) };
}

/** Loads the series. If profiles are seldom, their steps are longer: sums are merged, averages are loaded. */
async function loadTimeline(query: TenantQuery, signal: AbortSignal): Promise<TimelineResult> {
  const result = await loadSeries(query, signal);
  const factor = stepFactor(result.all.values);
  if (factor === 1) return result;
  if (!result.isAverage) return { ...result, ...mergeSteps(result, factor) };
  const range = { ...query.range, step: query.range.step * factor };
  return loadSeries({ ...query, range }, signal);
}

async function loadSeries(query: TenantQuery, signal: AbortSignal): Promise<TimelineResult> {
  const warnings = new Set<string>();
  const select = async (part: TimelineQuery, isGrouped: boolean) => {
    const request = seriesRequest(part, isGrouped);
    const reply = await call("querier.v1.QuerierService/SelectSeries", request, {
      signal,
      tenant: query.tenant,
    });
    for (const warning of reply.warnings) warnings.add(warning);
    return reply.message.series ?? [];
  };
  const isAverage = isGauge(query.profileType);
  const isGrouped = query.groupBy !== "";
  const [whole, grouped] = await Promise.all([
    select(query, false),
    isGrouped ? select(query, true) : Promise.resolve([]),
  ]);
  const all = alignSeries(whole[0], "", query.range);
  const groups = grouped.map(({ labels, ...points }) =>
    alignSeries(points, labels?.[0]?.value ?? "", query.range),
  );
  let other: TimelineSeries | undefined;
  if (isGrouped && !isAverage) other = otherSeries(all, groups);
  if (isAverage && groups.length === MAX_TIMELINE_GROUPS) {
    const names = groups.map((group) => group.name);
    const rest = await select(
      { ...query, selector: otherSelector(query.selector, query.groupBy, names) },
      false,
    );
    if (rest.length > 0) other = { ...alignSeries(rest[0], "other", query.range), isOther: true };
  }
  const series = isGrouped ? [...groups, ...(other === undefined ? [] : [other])] : [all];
  return {
    times: timesOf(query.range),
    start: query.range.start,
    stepMs: query.range.step,
    isAverage,
    all,
    series,
    warnings: [...warnings],
    query,
  };
}

export const timelineQuery = liveQuery(() => timelineQueryOf(view.value), loadTimeline);
