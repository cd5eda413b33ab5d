// Table of all functions of the query, as `go tool pprof -top` lists them.

import { signal } from "@preact/signals";
import { useCallback } from "preact/hooks";
import { heaviestPath } from "../graph/heaviest_node";
import { showName } from "../graph/names";
import { formatExact, formatPercent, formatValue } from "../theme/format";
import { queryOf } from "../url/query_of";
import { navigate, view } from "../url/store";
import type { FrameGrouping } from "../url/view_state";
import { pageSelection } from "./flame/selection";
import { openFrameMenu } from "./frame_menu";
import {
  FUNCTIONS_PER_PAGE,
  indexOfName,
  isTextColumn,
  rowOfTable,
  sumUpTo,
  type TableFunction,
} from "./function_rows";
import { type FunctionTable, rowsToCopy } from "./function_table";
import { hoveredName } from "./linked_hover";
import { QueryPanel } from "./query_panel";
import { functionQuery, graphQuery } from "./view_queries";
import { type TableColumn, VirtualTable } from "./virtual_list";
import "./table_view.css";

export interface TableViewProps {
  /** Replaces the selection of a function by another action. */
  readonly onPick?: (name: string) => void;
}

export function TableView({ onPick }: TableViewProps) {
  return (
    <QueryPanel query={functionQuery} label="Table of functions" estimate={queryOf(view.value)}>
      {(table: FunctionTable) => <TableOfFunctions table={table} onPick={onPick ?? selectFunction} />}
    </QueryPanel>
  );
}

/** Selects the heaviest node of a function in the graph beside the table. */
function selectFunction(name: string) {
  pageSelection.select(pathInGraph(name) ?? [name]);
}

/** Returns the path of the heaviest node of a function, or undefined if the page has no graph of functions. */
function pathInGraph(name: string): readonly string[] | undefined {
  const frames = view.peek().frames;
  const graph = graphQuery.state.peek().value;
  const hasFunctions = frames === "function" || frames.startsWith("label:");
  return graph === undefined || !hasFunctions ? undefined : heaviestPath(graph, name);
}

const rowFrames = signal<FrameGrouping>("function");

/** Opens the menu of a row. Rows are functions, whatever the frames of the graph are. */
function openRowMenu(name: string, x: number, y: number) {
  const path = pathInGraph(name);
  const selection = { ...pageSelection, frames: rowFrames, isInLink: path !== undefined };
  openFrameMenu({ x, y, name, path: path ?? [name], selection });
}

interface TableProps {
  readonly table: FunctionTable;
  readonly onPick: (name: string) => void;
}

function TableOfFunctions({ table, onPick }: TableProps) {
  const { tableSort, tableReversed, selectedPath } = view.value;
  const pages = table.pages.value;
  const selected = selectedPath.at(-1);
  const hovered = hoveredName.value;
  const isText = isTextColumn(tableSort);
  const onRange = useCallback(
    (first: number, end: number) => {
      for (let index = first; index < end + FUNCTIONS_PER_PAGE; index += FUNCTIONS_PER_PAGE) {
        void table.load(Math.floor(Math.min(index, Math.max(first, end - 1)) / FUNCTIONS_PER_PAGE));
      }
    },
    [table],
  );
  return (
    <VirtualTable
      name="functions"
      label="Functions"
      columns={functionColumns(table)}
      rowCount={table.count}
      rowAt={(index) => rowOfTable(pages, index)}
      keyOf={(row) => row.name}
      activeRow={selected === undefined ? undefined : indexOfName(pages, selected)}
      sort={{ column: tableSort, isDescending: isText === tableReversed }}
      onSort={(column) =>
        navigate({ tableSort: column, tableReversed: column === tableSort ? !tableReversed : false })
      }
      onOpen={({ name }) => onPick(name)}
      onHover={(index) => {
        hoveredName.value = index === undefined ? undefined : rowOfTable(pages, index)?.name;
      }}
      onMenu={({ name }, _index, x, y) => openRowMenu(name, x, y)}
      onRange={onRange}
      rowClass={({ name }) => (name === selected ? "is-selected" : name === hovered ? "is-linked" : "")}
      rowsToCopy={() => rowsToCopy(table)}
      toolbar={<TableSummary table={table} />}
    />
  );
}

function TableSummary({ table }: { readonly table: FunctionTable }) {
  const { head, total, unit, count, failure } = table;
  const isFiltered = table.request.filter !== undefined;
  const matched = BigInt(head.matchedTotal ?? 0);
  const isAverage = BigInt(head.averagedProfiles ?? 0) > 0n;
  return (
    <span class="table-summary" role="status">
      <strong>{count.toLocaleString("en").replaceAll(",", "\u202f")}</strong>{" "}
      {count === 1 ? "function" : "functions"}
      {isFiltered ? (
        <>
          {" "}
          {count === 1 ? "matches" : "match"}, <strong>{formatPercent(matched, total)}</strong> of
        </>
      ) : (
        ","
      )}{" "}
      <span title={formatExact(total, unit)}>{formatValue(total, unit)}</span>
      {isAverage ? " on average" : ""}
      {failure.value === undefined ? null : <span class="table-failure"> {failure.value}</span>}
    </span>
  );
}

function valueColumn(
  key: "self" | "total",
  title: string,
  hint: string,
  table: FunctionTable,
): TableColumn<TableFunction> {
  return {
    key,
    title,
    width: "var(--width-value)",
    isNumber: true,
    canSort: true,
    hint,
    cell: (row) => (
      <span title={formatExact(row[key], table.unit)} data-value={row[key].toString()}>
        {formatValue(row[key], table.unit)}
      </span>
    ),
    text: (row) => row[key].toString(),
  };
}

function shareColumn(
  key: string,
  title: string,
  hint: string,
  shareOf: (row: TableFunction, index: number) => bigint | undefined,
  total: bigint,
): TableColumn<TableFunction> {
  const text = (row: TableFunction, index: number) => {
    const value = shareOf(row, index);
    return value === undefined ? "…" : formatPercent(value, total);
  };
  return { key, title, width: "var(--width-share)", isNumber: true, hint, cell: text, text };
}

/** Returns the columns of pprof, and where the function is. */
function functionColumns(table: FunctionTable): TableColumn<TableFunction>[] {
  const { total } = table;
  return [
    valueColumn("self", "flat", "In the function itself", table),
    shareColumn("flat-share", "flat %", "flat, as a part of all", (row) => row.self, total),
    shareColumn(
      "sum-share",
      "sum %",
      "Sum of flat of all rows up to this one",
      (_, index) => sumUpTo(table.pages.peek(), index),
      total,
    ),
    valueColumn("total", "cum", "In the function and all that it called; a stack counts once", table),
    shareColumn("cum-share", "cum %", "cum, as a part of all", (row) => row.total, total),
    textColumn("name", "Function", "minmax(var(--width-name), 4fr)"),
    textColumn("file", "File", "minmax(120px, 2fr)"),
    textColumn("binary", "Binary", "minmax(90px, 1fr)"),
  ];
}

function textColumn(
  key: "name" | "file" | "binary",
  title: string,
  width: string,
): TableColumn<TableFunction> {
  const isName = key === "name";
  return {
    key,
    title,
    width,
    canSort: true,
    isFixed: isName,
    keepsEnd: true,
    cell: (row) => {
      const text = isName || row[key] !== "" ? showName(row[key]) : "";
      return (
        <span class={isName ? "function-name" : "function-place"} title={text}>
          {text}
        </span>
      );
    },
    text: (row) => row[key],
  };
}
