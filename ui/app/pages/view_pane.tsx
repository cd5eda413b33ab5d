// One view of the Explore page with its states: loading, partial, empty, failed.

import type { ComponentChildren } from "preact";
import { Choice } from "../components/choice";
import { FlameGraph } from "../components/flame/flame_graph";
import type { FunctionTable } from "../components/function_table";
import { QueryPanel } from "../components/query_panel";
import { SandwichView } from "../components/sandwich_view";
import { TableView } from "../components/table_view";
import { TreeView } from "../components/tree_view";
import { functionQuery, graphQuery } from "../components/view_queries";
import type { Graph } from "../graph/graph";
import { queryOf } from "../url/query_of";
import { navigate, view } from "../url/store";
import type { ViewName } from "../url/view_state";
import { changeToView, VIEW_TITLES } from "./explore_views";
import { OtherTime } from "./start";
import { ViewRequests } from "./view_requests";

interface ViewPaneProps {
  readonly name: ViewName;
  readonly pane: 0 | 1;
  readonly isSplit: boolean;
}

export function ViewPane({ name, pane, isSplit }: ViewPaneProps) {
  return (
    <>
      {isSplit ? <PaneBar name={name} pane={pane} /> : null}
      <ViewContent name={name} />
    </>
  );
}

function PaneBar({ name, pane }: { readonly name: ViewName; readonly pane: 0 | 1 }) {
  return (
    <div class="pane-bar">
      <Choice
        label={pane === 0 ? "First view" : "Second view"}
        value={name}
        options={VIEW_TITLES}
        onChange={(chosen) => navigate(changeToView(view.peek(), pane, chosen))}
      />
      <span class="table-bar-space" />
      <ViewRequests name={name} />
      <button
        type="button"
        class="button is-plain tool-button"
        aria-label="Close this view"
        title="Close this view"
        onClick={() => {
          const [first, second] = view.peek().views;
          navigate({ views: [pane === 0 ? (second ?? first) : first] });
        }}
      >
        ×
      </button>
    </div>
  );
}

function ViewContent({ name }: { readonly name: ViewName }) {
  switch (name) {
    case "flame":
    case "icicle":
      return (
        <GraphPanel label={name === "flame" ? "Flame graph" : "Icicle graph"}>
          {(graph) => <FlameGraph graph={graph} direction={name} />}
        </GraphPanel>
      );
    case "tree":
      return <GraphPanel label="Call tree">{(graph) => <TreeView graph={graph} />}</GraphPanel>;
    case "sandwich":
      return <SandwichView />;
    case "table":
      return <TableOrEmpty table={functionQuery.state.value.value} />;
  }
}

interface GraphPanelProps {
  readonly label: string;
  readonly children: (graph: Graph) => ComponentChildren;
}

function GraphPanel({ label, children }: GraphPanelProps) {
  return (
    <QueryPanel query={graphQuery} label={label} estimate={queryOf(view.value)}>
      {(graph: Graph) => (isEmpty(graph) ? <EmptySelection profiles={graph.profiles} /> : children(graph))}
    </QueryPanel>
  );
}

/** A graph of positive and negative values may have the total 0, but then it has nodes. */
function isEmpty(graph: Graph): boolean {
  return graph.nodeCount <= 1 && graph.queryTotal === 0n;
}

function TableOrEmpty({ table }: { readonly table: FunctionTable | undefined }) {
  const isEmpty = table !== undefined && table.count === 0 && table.request.filter === undefined;
  if (!isEmpty) return <TableView />;
  return (
    <QueryPanel query={functionQuery} label="Table of functions">
      {() => <EmptySelection profiles={0n} />}
    </QueryPanel>
  );
}

/** States that nothing is selected, and offers the nearest selection that is not empty. */
function EmptySelection({ profiles }: { readonly profiles: bigint }) {
  const { transforms, profileIds, spanIds, traceIds } = view.value;
  const hasIds = profileIds.length + spanIds.length + traceIds.length > 0;
  if (transforms.length === 0 && !hasIds && profiles === 0n) return <OtherTime />;
  return (
    <div class="empty-selection" role="status">
      <p>
        {transforms.length > 0
          ? "No stack is left after the transforms."
          : "The selected profiles have no stacks."}
      </p>
      {transforms.length > 0 ? (
        <button type="button" class="button" onClick={() => navigate({ transforms: [] })}>
          Remove all transforms
        </button>
      ) : null}
      {hasIds ? (
        <button
          type="button"
          class="button"
          onClick={() => navigate({ profileIds: [], spanIds: [], traceIds: [] })}
        >
          Show all profiles
        </button>
      ) : null}
    </div>
  );
}
