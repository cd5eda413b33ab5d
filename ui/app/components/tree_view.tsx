// Call tree as rows that expand.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Graph } from "../graph/graph";
import { showName } from "../graph/names";
import { nameOfNode, pathOfNode } from "../graph/path";
import { findMatch, isMatchingNode } from "../graph/search";
import { averageOf, displayedValue, type ValueColumn } from "../graph/values";
import { formatExact, formatPercent, formatValue } from "../theme/format";
import { view } from "../url/store";
import { expansionOf } from "./flame/expansion";
import { pageSelection } from "./flame/selection";
import { useHiddenCallees, useOpenPath } from "./flame/use_flame";
import { useMatches } from "./flame/use_matches";
import { openFrameMenu } from "./frame_menu";
import { hoveredName } from "./linked_hover";
import { useRequestedJump } from "./search_jump";
import { firstExpanded, keyOfPath, keysAbove, pathOfKey, type TreeRow, treeRows } from "./tree_rows";
import { type TableColumn, VirtualTable } from "./virtual_list";
import "./tree_view.css";

export function TreeView({ graph }: { readonly graph: Graph }) {
  const tree = useTree(graph);
  const { selectedPath, zoomPath, search } = view.value;
  const { flags: matches, search: matchedSearch } = useMatches(tree.graph, search);
  const selectedKey = keyOfPath(selectedPath);
  const hovered = hoveredName.value;
  const rows = useMemo(() => treeRows(tree.graph, tree.expanded), [tree.graph, tree.expanded]);

  useExpandedPath(tree, graph, selectedPath);
  useExpandedPath(tree, graph, zoomPath);
  const [active, setActive] = useActiveRow(rows, selectedKey, tree.graph);
  const area = useRef<HTMLDivElement>(null);
  const jump = (step: 1 | -1) => jumpToMatch(tree.graph, matches, rows[active]?.node ?? 0, step);
  useRequestedJump(area, matchedSearch, jump);
  const activate = (index: number) => {
    setActive(index);
    const row = rows[index];
    if (row !== undefined && !row.isHiddenRest) pageSelection.select(pathOfKey(row.key));
  };
  const open = (row: TreeRow) => {
    if (row.isHiddenRest) tree.loadRest(row.node);
    else pageSelection.select(pathOfKey(row.key));
  };
  return (
    <VirtualTable
      name="tree"
      role="treegrid"
      label="Call tree"
      area={area}
      columns={treeColumns(tree)}
      rowCount={rows.length}
      rowAt={(index) => rows[index]}
      keyOf={(row) => row.key}
      activeRow={Math.min(active, rows.length - 1)}
      onActivate={activate}
      onOpen={(row) => open(row)}
      onHover={(index) => {
        const row = index === undefined ? undefined : rows[index];
        const isFrame = row !== undefined && row.node > 0;
        hoveredName.value = isFrame ? nameOfNode(tree.graph, row.node) : undefined;
      }}
      onMenu={(row, _index, x, y) =>
        openFrameMenu({
          x,
          y,
          name: nameOfNode(tree.graph, row.node),
          path: pathOfKey(row.key),
          graph: tree.graph,
        })
      }
      onKey={(event, index) => {
        const isMatchKey = event.key === "n" || event.key === "N";
        if (!isMatchKey || event.altKey || event.ctrlKey || event.metaKey)
          return treeKey(event, index, rows, tree, activate);
        jump(event.key === "n" ? 1 : -1);
        return true;
      }}
      rowClass={(row) => rowClass(row, tree.graph, { selectedKey, hovered, matches })}
      rowAttributes={(row) => ({
        "aria-level": row.level,
        ...(row.isExpandable ? { "aria-expanded": row.isExpanded } : {}),
      })}
      toolbar={<TreeSummary graph={tree.graph} />}
    />
  );
}

/**
 * Expands the callers of a path once, and opens truncated nodes on the way. At once: a later effect would expand what a key
 * has collapsed meanwhile.
 */
function useExpandedPath(tree: TreeState, base: Graph, path: readonly string[]): void {
  useLayoutEffect(() => tree.expand(keysAbove(path)), [keyOfPath(path)]);
  useOpenPath(expansionOf(base), path);
}

/** Keeps the active row. Moves to that of the selected frame when it is visible, once for each selection and graph. */
function useActiveRow(
  rows: readonly TreeRow[],
  selectedKey: string,
  graph: Graph,
): readonly [active: number, setActive: (row: number) => void] {
  const [active, setActive] = useState(0);
  const revealed = useRef<{ key: string; graph: Graph } | undefined>(undefined);
  // Rows of hidden callees cannot be selected, so the selection stays at another row.
  const isRestActive = useRef(false);
  const selectedRow = rows.findIndex(({ key, isHiddenRest }) => key === selectedKey && !isHiddenRest);
  // At once: a later effect would undo the move of a key that was pressed meanwhile.
  useLayoutEffect(() => {
    if (selectedKey === "") revealed.current = undefined;
    const isSameKey = revealed.current?.key === selectedKey;
    const isKnown = isSameKey && (isRestActive.current || revealed.current?.graph === graph);
    if (selectedRow <= 0 || isKnown) return;
    revealed.current = { key: selectedKey, graph };
    isRestActive.current = false;
    setActive(selectedRow);
  }, [selectedKey, graph, selectedRow]);
  const activate = (row: number) => {
    isRestActive.current = rows[row]?.isHiddenRest === true;
    setActive(row);
  };
  return [active, activate];
}

/** Marks that the tree shares with other views. */
interface TreeMarks {
  readonly selectedKey: string;
  readonly hovered: string | undefined;
  /** One flag a name for matches of the search; undefined without a search. */
  readonly matches: Uint8Array | undefined;
}

function rowClass(row: TreeRow, graph: Graph, { selectedKey, hovered, matches }: TreeMarks): string {
  if (row.isHiddenRest) return "is-hidden-rest";
  const isMatch = matches !== undefined && isMatchingNode(graph, matches, row.node);
  const match = matches === undefined ? "" : isMatch ? "is-match" : "is-dimmed";
  if (row.key !== "" && row.key === selectedKey) return `is-selected ${match}`;
  const isLinked = row.node > 0 && nameOfNode(graph, row.node) === hovered;
  return isLinked ? `is-linked ${match}` : match;
}

interface TreeState {
  readonly graph: Graph;
  readonly expanded: ReadonlySet<string>;
  readonly isLoading: boolean;
  readonly toggle: (row: TreeRow) => void;
  readonly expand: (keys: readonly string[]) => void;
  readonly loadRest: (node: number) => void;
}

/** Keeps the expanded nodes, and the graph with all callees that were loaded later. */
function useTree(base: Graph): TreeState {
  const expansion = expansionOf(base);
  const graph = expansion.graph.value;
  const [expanded, setExpanded] = useState<ReadonlySet<string>>(() => firstExpanded(base));
  const loadRest = useHiddenCallees(undefined, expansion);
  const toggle = (row: TreeRow) => {
    const changed = new Set(expanded);
    if (!changed.delete(row.key)) {
      changed.add(row.key);
      if (graph.truncated[row.node] !== 0) loadRest(row.node);
    }
    setExpanded(changed);
  };
  const expand = (keys: readonly string[]) => {
    setExpanded((before) => (keys.every((key) => before.has(key)) ? before : new Set([...before, ...keys])));
  };
  return { graph, expanded, isLoading: expansion.loadingCount.value > 0, toggle, expand, loadRest };
}

/** Selects the next or previous match, if there is one. */
function jumpToMatch(graph: Graph, matches: Uint8Array | undefined, node: number, step: 1 | -1): void {
  const match = matches === undefined ? -1 : findMatch(graph, matches, node, step);
  if (match >= 0) pageSelection.select(pathOfNode(graph, match));
}

/** Handles the keys of a tree grid: right expands or enters, left collapses or leaves. */
function treeKey(
  event: KeyboardEvent,
  index: number,
  rows: readonly TreeRow[],
  tree: TreeState,
  activate: (row: number) => void,
): boolean {
  const row = rows[index];
  if (row === undefined || event.altKey || event.ctrlKey || event.metaKey) return false;
  if (event.key === "ArrowRight") {
    if (row.isExpandable && !row.isExpanded) tree.toggle(row);
    else if (row.isExpanded) activate(index + 1);
    return true;
  }
  if (event.key === "ArrowLeft") {
    if (row.isExpanded) tree.toggle(row);
    else
      activate(
        Math.max(
          0,
          rows.findLastIndex((above, place) => place < index && above.level < row.level),
        ),
      );
    return true;
  }
  if (event.key === " " && row.isExpandable) {
    tree.toggle(row);
    return true;
  }
  return false;
}

function TreeSummary({ graph }: { readonly graph: Graph }) {
  const total = displayedValue(graph, 0, "total");
  const hidden = graph.fullNodes - BigInt(graph.nodeCount);
  return (
    <span class="table-summary" role="status">
      <span title={formatExact(total, graph.unit)}>{formatValue(total, graph.unit)}</span>
      {graph.averagedProfiles > 0n ? " on average" : ""}
      {hidden > 0n ? `, ${formatValue(hidden, "count")} lighter nodes load when their caller expands` : ""}
    </span>
  );
}

function treeColumns(tree: TreeState): TableColumn<TreeRow>[] {
  const { graph } = tree;
  const whole = averageOf(graph.queryTotal, graph.averagedProfiles);
  const columnValue = (row: TreeRow, column: ValueColumn) => {
    if (!row.isHiddenRest) return displayedValue(graph, row.node, column);
    return column === "total" ? displayedValue(graph, row.node, "truncated") : 0n;
  };
  const value = (column: "total" | "self"): TableColumn<TreeRow> => ({
    key: column,
    title: column,
    width: "var(--width-value)",
    isNumber: true,
    cell: (row) =>
      row.isHiddenRest && column === "self" ? (
        ""
      ) : (
        <span
          title={formatExact(columnValue(row, column), graph.unit)}
          data-value={columnValue(row, column).toString()}
        >
          {formatValue(columnValue(row, column), graph.unit)}
        </span>
      ),
    text: (row) => columnValue(row, column).toString(),
  });
  const share = (column: "total" | "self"): TableColumn<TreeRow> => ({
    key: `${column}-share`,
    title: `${column} %`,
    width: "var(--width-share)",
    isNumber: true,
    cell: (row) =>
      row.isHiddenRest && column === "self" ? "" : formatPercent(columnValue(row, column), whole),
    text: (row) => formatPercent(columnValue(row, column), whole),
  });
  return [value("total"), share("total"), value("self"), share("self"), nameColumn(tree)];
}

function nameColumn(tree: TreeState): TableColumn<TreeRow> {
  const { graph } = tree;
  const nameOf = (row: TreeRow) => {
    if (row.isHiddenRest) return "lighter callees";
    return row.node === 0 ? "all" : showName(nameOfNode(graph, row.node));
  };
  return {
    key: "name",
    title: "Function",
    width: "minmax(var(--width-tree-name), 1fr)",
    isFixed: true,
    cell: (row) => (
      <span class="tree-name" style={{ paddingLeft: `${(row.level - 1) * 14}px` }}>
        {row.isExpandable ? (
          <button
            type="button"
            class="tree-twisty"
            tabIndex={-1}
            aria-label={row.isExpanded ? "Collapse" : "Expand"}
            onClick={(event) => {
              event.stopPropagation();
              tree.toggle(row);
            }}
          >
            {row.isExpanded ? "▾" : "▸"}
          </button>
        ) : (
          <span class="tree-twisty" />
        )}
        <span class="function-name" title={nameOf(row)}>
          <bdi>{nameOf(row)}</bdi>
        </span>
        {row.isHiddenRest ? <span class="tree-rest">{tree.isLoading ? "loading…" : "load"}</span> : null}
      </span>
    ),
    text: (row) => "  ".repeat(row.level - 1) + nameOf(row),
  };
}
