// Calls of the fleet page: points, totals of two periods, and series. Three in all.

import { call } from "../api/client";
import { liveQuery } from "../api/live_query";
import type { SelectSeriesRequest, SeriesRequest } from "../api/types";
import { isGauge } from "../theme/cost";
import { type TimeRange, timeRangeOf } from "../url/query_of";
import { view } from "../url/store";
import type { ViewState } from "../url/view_state";
import { type FleetRow, firstPoint, fleetRows, SERVICE_LABEL, sparklineRange } from "./fleet_rows";

export interface FleetRequests {
  readonly tenant: string;
  readonly label: string;
  readonly range: TimeRange;
  readonly points: SelectSeriesRequest;
  readonly totals: SelectSeriesRequest;
  readonly series: SeriesRequest;
}

export interface FleetData {
  readonly rows: readonly FleetRow[];
  readonly warnings: readonly string[];
  readonly range: TimeRange;
  readonly label: string;
  readonly profileType: string;
}

/** Returns the label whose values are the rows. */
export function fleetLabel(state: ViewState): string {
  return state.groupBy === "" ? SERVICE_LABEL : state.groupBy;
}

/** Returns the requests of the fleet, or undefined while the view has no profile type. */
export function fleetRequests(state: ViewState): FleetRequests | undefined {
  if (state.page !== "fleet" || state.profileType === "") return undefined;
  const range = sparklineRange(timeRangeOf(state));
  const label = fleetLabel(state);
  const common = {
    profileTypeID: state.profileType,
    labelSelector: state.selector,
    end: String(range.end),
    groupBy: [label],
    aggregation: isGauge(state.profileType)
      ? "TIME_SERIES_AGGREGATION_TYPE_AVERAGE"
      : "TIME_SERIES_AGGREGATION_TYPE_SUM",
  } as const;
  return {
    tenant: state.tenant,
    label,
    range,
    points: { ...common, start: String(firstPoint(range)), step: range.step / 1000 },
    // A point covers the step before it: one step is the period before the range, the next one is the range.
    totals: { ...common, start: String(range.start), step: (range.end - range.start) / 1000 },
    series: {
      matchers: [state.selector],
      labelNames: [...new Set([label, SERVICE_LABEL, "__profile_type__"])],
      start: String(range.start),
      end: String(range.end),
    },
  };
}

async function loadFleet(requests: FleetRequests, signal: AbortSignal): Promise<FleetData> {
  const options = { signal, tenant: requests.tenant };
  const [points, totals, series] = await Promise.all([
    call("querier.v1.QuerierService/SelectSeries", requests.points, options),
    call("querier.v1.QuerierService/SelectSeries", requests.totals, options),
    call("querier.v1.QuerierService/Series", requests.series, options),
  ]);
  const rows = fleetRows(requests.label, requests.range, {
    points: points.message.series ?? [],
    totals: totals.message.series ?? [],
    series: series.message,
  });
  const warnings = [...new Set([...points.warnings, ...totals.warnings, ...series.warnings])];
  const { range, label } = requests;
  return { rows, warnings, range, label, profileType: requests.points.profileTypeID ?? "" };
}

export const fleetQuery = liveQuery(() => fleetRequests(view.value), loadFleet);
