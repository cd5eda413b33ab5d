// Columns of the fleet.

import { SPARKLINE_WIDTH, Sparkline } from "../components/sparkline";
import type { TableColumn } from "../components/virtual_list";
import { costChange, formatCost, formatPrecise, isGauge, parseProfileType, writeNumber } from "../theme/cost";
import { formatPercent, formatTime } from "../theme/format";
import { nameProfileType } from "../theme/profile_types";
import { wallClock } from "../url/clock";
import { hrefOf, view } from "../url/store";
import { exploreOfRow } from "./explore_link";
import type { FleetData } from "./fleet_query";
import { type FleetRow, lastSeenText, SERVICE_LABEL } from "./fleet_rows";

/** Number of types that a cell names. */
const SHOWN_TYPES = 4;

/** Returns the columns. Shares are parts of `total`, the sum of all rows. */
export function fleetColumns(data: FleetData, total: bigint): TableColumn<FleetRow>[] {
  const isByService = data.label === SERVICE_LABEL;
  const columns = [nameColumn(data, isByService), ...costColumns(data, total), typesColumn()];
  return [...columns, ...(isByService ? [] : [servicesColumn()]), seenColumn(data)];
}

function nameColumn(data: FleetData, isByService: boolean): TableColumn<FleetRow> {
  return {
    key: "name",
    title: isByService ? "Service" : data.label,
    width: "minmax(120px, 0.6fr)",
    canSort: true,
    isFixed: true,
    cell: (row) => (
      <a class="fleet-name" tabIndex={-1} href={hrefOf(exploreOfRow(row, data.label))} onClick={openInPlace}>
        {row.name === "" ? `(no ${data.label})` : row.name}
      </a>
    ),
    text: (row) => row.name,
  };
}

/** The row opens by itself. Other windows and tabs are left to the browser. */
function openInPlace(event: MouseEvent) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) event.stopPropagation();
  else event.preventDefault();
}

function costColumns(data: FleetData, total: bigint): TableColumn<FleetRow>[] {
  const duration = data.range.end - data.range.start;
  const cost = (value: bigint) => formatCost(value, duration, data.profileType);
  const { unit } = parseProfileType(data.profileType);
  const isAverage = isGauge(data.profileType);
  return [
    {
      key: "trend",
      title: "Trend",
      width: `${SPARKLINE_WIDTH}px`,
      cell: (row) => <Sparkline points={row.points} label={`Trend of ${row.name}`} />,
      text: (row) => [...row.points].map((point) => (Number.isNaN(point) ? "" : String(point))).join(" "),
    },
    {
      key: "cost",
      title: isAverage ? "Average" : "Cost",
      width: "128px",
      isNumber: true,
      canSort: true,
      hint: isAverage ? "Average of the profiles in the range" : "Sum of the range, divided by its duration",
      cell: (row) =>
        row.value === undefined ? (
          <span class="fleet-none">–</span>
        ) : (
          <span title={`${formatPrecise(row.value, unit)}${isAverage ? " on average" : " in the range"}`}>
            {cost(row.value)}
          </span>
        ),
      text: (row) => (row.value === undefined ? "" : writeNumber(row.value)),
    },
    {
      key: "share",
      title: "Share",
      width: "96px",
      isNumber: true,
      hint: isAverage ? "Part of the sum of all averages" : "Part of the sum of all rows",
      cell: (row) => (row.value === undefined ? null : <ShareBar part={row.value} whole={total} />),
      text: (row) => (row.value === undefined ? "" : formatPercent(row.value, total)),
    },
    {
      key: "change",
      title: "Change",
      width: "84px",
      isNumber: true,
      canSort: true,
      hint: "Change from the period of the same length before",
      cell: (row) => <ChangeText row={row} cost={cost} />,
      text: (row) => costChange(row.value ?? 0n, row.previous ?? 0n).text,
    },
  ];
}

function ShareBar({ part, whole }: { readonly part: bigint; readonly whole: bigint }) {
  const permille = whole === 0n ? 0 : Number((1000n * part) / whole);
  return (
    <span class="share-bar">
      <span class="share-fill" style={{ width: `${Math.max(0, Math.min(100, permille / 10))}%` }} />
      <span class="share-text">{formatPercent(part, whole)}</span>
    </span>
  );
}

interface ChangeTextProps {
  readonly row: FleetRow;
  readonly cost: (value: bigint) => string;
}

function ChangeText({ row, cost }: ChangeTextProps) {
  const change = costChange(row.value ?? 0n, row.previous ?? 0n);
  return (
    <span class={`change-${change.kind}`} title={`${cost(row.previous ?? 0n)} in the period before`}>
      {change.text}
    </span>
  );
}

function typesColumn(): TableColumn<FleetRow> {
  const nameOf = (type: string) => nameProfileType(type).title;
  return {
    key: "types",
    title: "Types",
    width: "minmax(100px, 1fr)",
    canSort: true,
    cell: ({ types }) => {
      const more = types.length - SHOWN_TYPES;
      const names = types.slice(0, SHOWN_TYPES).map(nameOf).join(", ");
      return (
        <span class="fleet-types" title={types.join("\n")}>
          {more > 0 ? `${names} +${more}` : names}
        </span>
      );
    },
    text: ({ types }) => types.join(" "),
  };
}

function servicesColumn(): TableColumn<FleetRow> {
  return {
    key: "services",
    title: "Services",
    width: "84px",
    isNumber: true,
    canSort: true,
    cell: ({ services }) => <span title={services.slice(0, 20).join("\n")}>{services.length}</span>,
    text: ({ services }) => services.join(" "),
  };
}

function seenColumn(data: FleetData): TableColumn<FleetRow> {
  return {
    key: "seen",
    title: "Last seen",
    width: "88px",
    isNumber: true,
    canSort: true,
    hint: "Age of the last step of the trend with a profile of this type. Profiles after the range do not count.",
    cell: ({ lastSeen }) =>
      lastSeen === undefined ? (
        <span class="fleet-none">–</span>
      ) : (
        <LastSeen lastSeen={lastSeen} step={data.range.step} />
      ),
    text: ({ lastSeen }) => (lastSeen === undefined ? "" : new Date(lastSeen).toISOString()),
  };
}

interface LastSeenProps {
  readonly lastSeen: number;
  readonly step: number;
}

/** Age of a row. A component of its own, so that the wall clock draws only the ages. */
function LastSeen({ lastSeen, step }: LastSeenProps) {
  return (
    <span title={formatTime(lastSeen, view.value.timeZone)}>
      {lastSeenText(lastSeen, step, wallClock.value)}
    </span>
  );
}
