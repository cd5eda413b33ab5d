// Fleet page: a row for each service, or for each value of a label.

import { computed } from "@preact/signals";
import type { Query } from "../api/types";
import { LabelInput } from "../components/label_input";
import { QueryPanel } from "../components/query_panel";
import { RequestPopover } from "../components/request_popover";
import { VirtualTable } from "../components/virtual_list";
import { formatCost, isGauge } from "../theme/cost";
import { queryOf, timeRangeOf } from "../url/query_of";
import { navigate, view } from "../url/store";
import type { ViewState } from "../url/view_state";
import { exploreOfRow } from "./explore_link";
import { fleetColumns } from "./fleet_columns";
import { type FleetData, fleetLabel, fleetQuery, fleetRequests } from "./fleet_query";
import { type FleetRow, filterRows, fleetTotal, SERVICE_LABEL, sortRows } from "./fleet_rows";
import { OtherTime } from "./start";
import "./fleet.css";

const shownRows = computed<readonly FleetRow[]>(() => {
  const { fleetFilter, fleetSort, fleetReversed } = view.value;
  const rows = fleetQuery.state.value.value?.rows ?? [];
  return sortRows(filterRows(rows, fleetFilter), fleetSort, fleetReversed);
});

/** Returns the query that reads what the fleet reads: the range, and the period of the same length before. */
function estimateQuery(state: ViewState): Query | undefined {
  const query = queryOf(state);
  const { start, end } = timeRangeOf(state);
  return query === undefined ? undefined : { ...query, start: String(2 * start - end) };
}

export function FleetPage() {
  return (
    <main class="fleet-page">
      <h1 class="visually-hidden">Fleet</h1>
      <QueryPanel query={fleetQuery} label="Fleet" estimate={estimateQuery(view.value)}>
        {(data: FleetData) => (data.rows.length === 0 ? <OtherTime /> : <FleetTable data={data} />)}
      </QueryPanel>
    </main>
  );
}

function FleetTable({ data }: { readonly data: FleetData }) {
  const { fleetSort, fleetReversed } = view.value;
  const rows = shownRows.value;
  const columns = fleetColumns(data, fleetTotal(data.rows));
  const isName = fleetSort === "name";
  return (
    <VirtualTable
      name="fleet"
      label={data.label === SERVICE_LABEL ? "Services" : `Values of ${data.label}`}
      columns={columns}
      rowCount={rows.length}
      rowAt={(index) => rows[index]}
      keyOf={(row) => row.name}
      sort={{ column: fleetSort, isDescending: isName === fleetReversed }}
      onSort={(column) =>
        navigate({ fleetSort: column, fleetReversed: column === fleetSort ? !fleetReversed : false })
      }
      onOpen={(row) => navigate(exploreOfRow(row, data.label))}
      toolbar={<FleetBar data={data} shown={rows.length} />}
    />
  );
}

function openFirstRow(label: string): void {
  const row = shownRows.peek()[0];
  if (row !== undefined) navigate(exploreOfRow(row, label));
}

function FleetBar({ data, shown }: { readonly data: FleetData; readonly shown: number }) {
  const state = view.value;
  const duration = data.range.end - data.range.start;
  const total = formatCost(fleetTotal(data.rows), duration, data.profileType);
  const noun = data.label === SERVICE_LABEL ? "service" : "value";
  const origin = data.label === SERVICE_LABEL ? "" : ` of ${fleetLabel(state)}`;
  const count = shown === data.rows.length ? `${shown}` : `${shown} of ${data.rows.length}`;
  return (
    <>
      <input
        type="search"
        class="fleet-filter"
        aria-label="Filter rows"
        placeholder="Filter…"
        data-search-field
        value={state.fleetFilter}
        onInput={(event) => navigate({ fleetFilter: event.currentTarget.value }, "typing")}
        onKeyDown={(event) => {
          // Enter that ends a composition of an input method only chooses its text.
          if (event.key === "Enter" && !event.isComposing) openFirstRow(data.label);
        }}
      />
      <LabelInput
        label="Group by"
        placeholder="service"
        value={state.groupBy}
        onChange={(groupBy) => navigate({ groupBy })}
      />
      <span class="fleet-count" role="status">
        {count} {data.rows.length === 1 ? noun : `${noun}s`}
        {origin}
        {isGauge(data.profileType) ? null : <span class="fleet-total"> · {total}</span>}
      </span>
      <FleetRequests />
    </>
  );
}

function FleetRequests() {
  const requests = fleetRequests(view.value);
  if (requests === undefined) return null;
  const { range, points, totals, series, label } = requests;
  const query = {
    profileType: points.profileTypeID,
    selector: points.labelSelector,
    start: points.start,
    end: points.end,
  };
  return (
    <RequestPopover
      requests={[
        { title: "Points", method: "querier.v1.QuerierService/SelectSeries", request: points },
        {
          title: "Totals of both periods",
          method: "querier.v1.QuerierService/SelectSeries",
          request: totals,
        },
        { title: "Types", method: "querier.v1.QuerierService/Series", request: series },
      ]}
      series={{ query, groupBy: [label], stepSeconds: range.step / 1000, limit: undefined }}
    />
  );
}
