// Virtualized table: only the visible rows are in the document.
// biome-ignore-all lint/a11y/useSemanticElements: rows of a table element cannot be positioned one by one.
// biome-ignore-all lint/a11y/useFocusableInteractive: the grid has the focus and names its active row.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { notify } from "../url/notices";
import { copyText } from "./clipboard";
import { ColumnPicker } from "./column_picker";
import {
  type ListGeometry,
  maxDrawnRows,
  type RowWindow,
  rowOfKey,
  rowWindow,
  scrollHeightOf,
  scrollTopFor,
} from "./row_window";
import { toTsv } from "./tsv";
import "./tools.css";
import "./virtual_list.css";

/** Height of a row and of the header in pixels. Equals `--row-height` of the style sheet. */
export const ROW_HEIGHT = 24;

export interface TableColumn<Row> {
  readonly key: string;
  readonly title: string;
  /** Track of the CSS grid, such as `90px` or `minmax(160px, 1fr)`. */
  readonly width: string;
  readonly isNumber?: boolean;
  /** Shortens texts of a narrow column at their beginning. */
  readonly keepsEnd?: boolean;
  /** Explains the column; shown when the pointer rests on its title. */
  readonly hint?: string;
  readonly canSort?: boolean;
  /** False for a column that is hidden until the user selects it. */
  readonly isShown?: boolean;
  /** Column that cannot be hidden. */
  readonly isFixed?: boolean;
  readonly cell: (row: Row, index: number) => ComponentChildren;
  /** Text of the cell in tab-separated copies. */
  readonly text: (row: Row, index: number) => string;
}

export interface SortState {
  readonly column: string;
  readonly isDescending: boolean;
}

export interface TableEvents<Row> {
  readonly onSort?: (column: string) => void;
  /** Click, or Enter on the active row. */
  readonly onOpen?: (row: Row, index: number, event: MouseEvent | KeyboardEvent) => void;
  /** Move of the active row by click or key. */
  readonly onActivate?: (index: number) => void;
  readonly onHover?: (index: number | undefined) => void;
  readonly onMenu?: (row: Row, index: number, x: number, y: number) => void;
  /** Keys that the table does not handle itself. Returns true if the key was handled. */
  readonly onKey?: (event: KeyboardEvent, index: number) => boolean;
  /** Range of rows that are drawn now. */
  readonly onRange?: (first: number, end: number) => void;
}

export interface VirtualTableProps<Row> extends TableEvents<Row> {
  readonly label: string;
  /** Name under which the browser stores the selected columns. */
  readonly name: string;
  readonly role?: "grid" | "treegrid";
  /** Receives the element that scrolls and takes the keys. */
  readonly area?: RefObject<HTMLDivElement>;
  readonly columns: readonly TableColumn<Row>[];
  readonly rowCount: number;
  /** Returns a row, or undefined while it is loading. */
  readonly rowAt: (index: number) => Row | undefined;
  readonly keyOf: (row: Row, index: number) => string;
  readonly sort?: SortState;
  /** Row of the selection that comes from outside, such as another view. */
  readonly activeRow?: number | undefined;
  readonly rowClass?: (row: Row, index: number) => string;
  readonly rowAttributes?: (row: Row, index: number) => JSX.HTMLAttributes<HTMLDivElement>;
  /** Rows for a copy of the whole table; the loaded ones if absent. */
  readonly rowsToCopy?: () => Promise<readonly Row[]>;
  /** Shown beside the buttons above the table. */
  readonly toolbar?: ComponentChildren;
}

let tableCount = 0;
/** Height of the visible rows of the last table. The next one begins with it, and is drawn once if it is as high. */
let lastViewport = 600;

export function VirtualTable<Row>(props: VirtualTableProps<Row>) {
  const [id] = useState(() => `table-${tableCount++}`);
  const ownArea = useRef<HTMLDivElement>(null);
  const scroller = props.area ?? ownArea;
  const [scrollTop, setScrollTop] = useState(0);
  const [viewport, setViewport] = useState(lastViewport);
  const [active, setActive] = useState(0);
  const hidden = useHiddenColumns(props);
  const columns = props.columns.filter((column) => column.isFixed === true || !hidden.value.has(column.key));
  const geometry: ListGeometry = { rowCount: props.rowCount, rowHeight: ROW_HEIGHT, viewport };
  const drawn = rowWindow(scrollTop, geometry);
  useViewport(scroller, setViewport);
  useEffect(() => props.onRange?.(drawn.first, drawn.end), [drawn.first, drawn.end, props.onRange]);
  const show = (row: number) => {
    setActive(row);
    const area = scroller.current;
    if (area !== null) area.scrollTop = scrollTopFor(row, area.scrollTop, geometry);
  };
  // At once: a later effect would undo the move of a key that was pressed meanwhile.
  useLayoutEffect(() => {
    if (props.activeRow !== undefined) show(props.activeRow);
  }, [props.activeRow]);
  const activate = (row: number) => {
    show(row);
    props.onActivate?.(row);
  };
  const current = Math.min(active, Math.max(0, props.rowCount - 1));
  const isDrawn = current >= drawn.first && current < drawn.end;
  const pageRows = Math.max(1, Math.floor(viewport / ROW_HEIGHT) - 1);
  const activeElement = () => document.getElementById(`${id}-${current}`);

  return (
    <div class="table-frame">
      <div class="table-bar">
        {props.toolbar}
        <span class="table-bar-space" />
        <ColumnPicker columns={props.columns} hidden={hidden} />
        <CopyButton {...props} columns={columns} />
      </div>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the role is a grid or a tree grid. */}
      {/* biome-ignore lint/a11y/useAriaPropsSupportedByRole: the role is a grid or a tree grid. */}
      <div
        class="virtual-table"
        role={props.role ?? "grid"}
        aria-label={props.label}
        aria-rowcount={props.rowCount + 1}
        aria-colcount={columns.length}
        aria-activedescendant={isDrawn ? `${id}-${current}` : undefined}
        tabIndex={0}
        ref={scroller}
        style={{ "--columns": columns.map((column) => column.width).join(" ") }}
        onScroll={(event) => setScrollTop(event.currentTarget.scrollTop)}
        onKeyDown={tableKeys(props, current, pageRows, activate, activeElement)}
        onMouseLeave={() => props.onHover?.(undefined)}
      >
        <div class="virtual-content">
          <TableHeader {...props} columns={columns} />
          <TableRows {...props} {...{ id, columns, geometry, drawn, activate }} current={current} />
        </div>
      </div>
    </div>
  );
}

interface RowsProps<Row> extends VirtualTableProps<Row> {
  readonly id: string;
  readonly geometry: ListGeometry;
  readonly drawn: RowWindow;
  readonly current: number;
  readonly activate: (row: number) => void;
}

function TableRows<Row>(props: RowsProps<Row>) {
  const { id, geometry, drawn, current } = props;
  // Rows that leave the window are drawn anew as those that enter it, so that scrolling creates no elements.
  const poolSize = maxDrawnRows(geometry);
  return (
    <div class="virtual-rows" role="rowgroup" style={{ height: `${scrollHeightOf(geometry)}px` }}>
      {visibleRows(drawn.first, drawn.end).map((index) => (
        <TableRow
          {...props}
          key={index % poolSize}
          id={`${id}-${index}`}
          index={index}
          top={drawn.offset + (index - drawn.first) * ROW_HEIGHT}
          isActive={index === current}
        />
      ))}
    </div>
  );
}

function visibleRows(first: number, end: number): number[] {
  return Array.from({ length: Math.max(0, end - first) }, (_, place) => first + place);
}

/** Keeps the height of the visible rows up to date. */
function useViewport(scroller: { current: HTMLDivElement | null }, setViewport: (height: number) => void) {
  useLayoutEffect(() => {
    const area = scroller.current;
    if (area === null) return;
    const measure = () => {
      lastViewport = Math.max(ROW_HEIGHT, area.clientHeight - ROW_HEIGHT);
      setViewport(lastViewport);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(area);
    return () => observer.disconnect();
  }, []);
}

function tableKeys<Row>(
  props: VirtualTableProps<Row>,
  current: number,
  pageRows: number,
  activate: (row: number) => void,
  activeElement: () => HTMLElement | null,
) {
  return (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget) return;
    const row = props.rowAt(current);
    if (props.onKey?.(event, current) === true) {
      event.preventDefault();
      return;
    }
    const isMenuKey = event.key === "ContextMenu" || (event.shiftKey && event.key === "F10");
    if (isMenuKey && row !== undefined && props.onMenu !== undefined) {
      const box = activeElement()?.getBoundingClientRect();
      props.onMenu(row, current, (box?.left ?? 0) + 24, box?.bottom ?? 0);
    } else if (event.altKey || event.ctrlKey || event.metaKey) {
      return;
    } else if (event.key === "Enter" && row !== undefined && props.onOpen !== undefined) {
      props.onOpen(row, current, event);
    } else {
      const target = rowOfKey(event.key, current, props.rowCount, pageRows);
      if (target === undefined) return;
      activate(target);
    }
    event.preventDefault();
    event.stopPropagation();
  };
}

interface HeaderProps<Row> extends TableEvents<Row> {
  readonly columns: readonly TableColumn<Row>[];
  readonly sort?: SortState;
}

function TableHeader<Row>({ columns, sort, onSort }: HeaderProps<Row>) {
  return (
    <div class="table-row table-header" role="row" aria-rowindex={1}>
      {columns.map((column) => {
        const isSorted = sort?.column === column.key;
        const order = isSorted ? (sort.isDescending ? "descending" : "ascending") : "none";
        return (
          <div
            key={column.key}
            role="columnheader"
            class={column.isNumber === true ? "table-cell table-number" : "table-cell"}
            aria-sort={column.canSort === true ? order : undefined}
            title={column.hint}
          >
            {column.canSort === true ? (
              <button type="button" class="table-sort" onClick={() => onSort?.(column.key)}>
                {column.title}
                {isSorted ? (
                  <span class="table-arrow" aria-hidden="true">
                    {sort.isDescending ? "▼" : "▲"}
                  </span>
                ) : null}
              </button>
            ) : (
              column.title
            )}
          </div>
        );
      })}
    </div>
  );
}

interface RowProps<Row> extends VirtualTableProps<Row> {
  readonly id: string;
  readonly index: number;
  readonly top: number;
  readonly isActive: boolean;
  readonly activate: (row: number) => void;
}

function TableRow<Row>(props: RowProps<Row>) {
  const { index, columns, isActive } = props;
  const row = props.rowAt(index);
  const classes = ["table-row", isActive ? "is-active" : "", index % 2 === 1 ? "is-odd" : ""];
  if (row !== undefined && props.rowClass !== undefined) classes.push(props.rowClass(row, index));
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: keys are handled by the grid, which has the focus.
    <div
      id={props.id}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={isActive}
      class={classes.filter((name) => name !== "").join(" ")}
      style={{ transform: `translateY(${props.top}px)` }}
      {...(row === undefined ? {} : props.rowAttributes?.(row, index))}
      onMouseMove={() => props.onHover?.(index)}
      onClick={(event) => {
        props.activate(index);
        if (row !== undefined && window.getSelection()?.isCollapsed !== false)
          props.onOpen?.(row, index, event);
      }}
      onContextMenu={(event) => {
        if (row === undefined || props.onMenu === undefined) return;
        event.preventDefault();
        props.activate(index);
        props.onMenu(row, index, event.clientX, event.clientY);
      }}
    >
      {columns.map((column) => (
        <div key={column.key} role="gridcell" class={cellClass(column)}>
          {row === undefined ? <span class="table-pending">…</span> : column.cell(row, index)}
        </div>
      ))}
    </div>
  );
}

function cellClass<Row>({ isNumber, keepsEnd }: TableColumn<Row>): string {
  if (isNumber === true) return "table-cell table-number";
  return keepsEnd === true ? "table-cell keeps-end" : "table-cell";
}

function CopyButton<Row>({ columns, rowCount, rowAt, rowsToCopy }: VirtualTableProps<Row>) {
  const copy = async () => {
    const loaded = visibleRows(0, rowCount).map(rowAt);
    const rows = (await rowsToCopy?.()) ?? loaded.filter((row) => row !== undefined);
    const header = columns.map((column) => column.title);
    const cells = rows.map((row, index) => columns.map((column) => column.text(row, index)));
    await copyText(toTsv(header, cells), `Copied ${rows.length} rows.`);
  };
  return (
    <button
      type="button"
      class="button is-plain tool-button"
      title="Copy all rows as tab-separated values"
      onClick={() =>
        copy().catch((error: unknown) =>
          notify(`Cannot copy the rows: ${error instanceof Error ? error.message : error}`, "error"),
        )
      }
      disabled={rowCount === 0}
    >
      Copy as TSV
    </button>
  );
}

const hiddenByTable = new Map<string, ReturnType<typeof readHidden>>();

/** Returns the hidden columns of a table. All instances of a table share them. */
function useHiddenColumns<Row>({ name, columns }: VirtualTableProps<Row>) {
  let hidden = hiddenByTable.get(name);
  if (hidden === undefined) {
    hidden = readHidden(
      name,
      columns.filter((column) => column.isShown === false).map((column) => column.key),
    );
    hiddenByTable.set(name, hidden);
  }
  return hidden;
}

function readHidden(name: string, initial: readonly string[]) {
  const key = `athanor.columns.${name}`;
  let stored: string | null = null;
  try {
    stored = localStorage.getItem(key);
  } catch {
    // A browser may refuse storage. Then the selection of columns lasts as long as the page.
  }
  const hidden = signal<ReadonlySet<string>>(new Set(stored === null ? initial : stored.split(",")));
  hidden.subscribe((columns) => {
    try {
      localStorage.setItem(key, [...columns].join(","));
    } catch {
      // See above.
    }
  });
  return hidden;
}
