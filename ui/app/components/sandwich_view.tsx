// Callers of a function above it, its callees below.

import { useMemo } from "preact/hooks";
import type { Tree } from "../api/types";
import { graphFromTree, type JsonTree, type TreeOrigin } from "../graph/from_tree";
import { showName } from "../graph/names";
import { formatExact, formatPercent, formatValue } from "../theme/format";
import { queryOf } from "../url/query_of";
import { navigate, view } from "../url/store";
import { FlameGraph } from "./flame/flame_graph";
import { setGraphOrigin } from "./flame/graph_origin";
import { createLocalSelection } from "./flame/selection";
import { QueryPanel } from "./query_panel";
import { TableView } from "./table_view";
import { type SandwichResult, sandwichQuery } from "./view_queries";
import "./sandwich_view.css";

export function SandwichView() {
  if (view.value.sandwichFunction === "") return <FunctionPicker />;
  return (
    <QueryPanel query={sandwichQuery} label="Sandwich" estimate={queryOf(view.value)}>
      {(result: SandwichResult) => <SandwichBody result={result} />}
    </QueryPanel>
  );
}

function FunctionPicker() {
  return (
    <div class="sandwich">
      <p class="sandwich-hint">Choose a function to see its callers and callees.</p>
      <TableView onPick={(name) => navigate({ sandwichFunction: name })} />
    </div>
  );
}

function graphOf(tree: Tree | undefined, origin: TreeOrigin, { tenant, request }: SandwichResult) {
  const graph = graphFromTree((tree ?? {}) as JsonTree, origin);
  setGraphOrigin(graph, { tenant, request: { query: request.query } });
  return graph;
}

function SandwichBody({ result }: { readonly result: SandwichResult }) {
  const { response, request } = result;
  const total = BigInt(response.total ?? 0);
  const self = BigInt(response.self ?? 0);
  const queryTotal = BigInt(response.queryTotal ?? 0);
  const unit = response.unit ?? "";
  const graphs = useMemo(() => {
    const origin = { queryTotal, unit, resolution: response.resolution ?? "" };
    return {
      callers: { graph: graphOf(response.callers, origin, result), selection: createLocalSelection() },
      callees: { graph: graphOf(response.callees, origin, result), selection: createLocalSelection() },
    };
  }, [response]);
  const isAverage = BigInt(response.averagedProfiles ?? 0) > 0n;
  return (
    <div class="sandwich">
      <div class="sandwich-part is-callers">
        <h3 class="sandwich-title">Callers</h3>
        <FlameGraph {...graphs.callers} direction="flame" loadSubtree={null} label="Callers" />
      </div>
      <div class="sandwich-function">
        <strong class="function-name" title={showName(request.function ?? "")}>
          {showName(request.function ?? "")}
        </strong>
        <span>
          total <strong title={formatExact(total, unit)}>{formatValue(total, unit)}</strong>
          {` (${formatPercent(total, queryTotal)})`}
        </span>
        <span>
          self <strong title={formatExact(self, unit)}>{formatValue(self, unit)}</strong> (
          {formatPercent(self, total)} of its total)
        </span>
        {isAverage ? <span>averages</span> : null}
        <button type="button" class="button tool-button" onClick={() => navigate({ sandwichFunction: "" })}>
          Choose another
        </button>
      </div>
      <div class="sandwich-part">
        <h3 class="sandwich-title">Callees</h3>
        <FlameGraph {...graphs.callees} direction="icicle" loadSubtree={null} label="Callees" />
      </div>
    </div>
  );
}
