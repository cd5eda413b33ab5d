// Callers of a function above it, its callees below.

import { useMemo } from "preact/hooks";
import type { GraphRequest } from "../api/types";
import { showName } from "../graph/names";
import { formatExact, formatPercent, formatValue } from "../theme/format";
import { queryOf } from "../url/query_of";
import { navigate, view } from "../url/store";
import type { SubtreeLoader } from "./flame/expansion";
import { FlameGraph } from "./flame/flame_graph";
import { loadGraph } from "./flame/graph_loader";
import { createLocalSelection } from "./flame/selection";
import { QueryPanel } from "./query_panel";
import { type SandwichResult, sandwichQuery } from "./sandwich_query";
import { excessTransformsNotice } from "./sandwich_requests";
import { TableView } from "./table_view";
import "./sandwich_view.css";

export function SandwichView() {
  if (view.value.sandwichFunction === undefined) return <FunctionPicker />;
  const notice = excessTransformsNotice(view.value);
  if (notice !== undefined) return <TransformNotice text={notice} />;
  return (
    <QueryPanel query={sandwichQuery} label="Sandwich" estimate={queryOf(view.value)}>
      {(result: SandwichResult) => <SandwichBody result={result} />}
    </QueryPanel>
  );
}

function TransformNotice({ text }: { readonly text: string }) {
  return (
    <div class="sandwich">
      <div class="banner is-warning" role="alert">
        <div class="banner-text">{text}</div>
      </div>
    </div>
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

/** Selections of both graphs. Their paths begin at the function, so they are not those of the link. */
function createSelections() {
  return { callers: createLocalSelection(true), callees: createLocalSelection(false) };
}

function SandwichBody({ result }: { readonly result: SandwichResult }) {
  const { response, requests, callers, callees } = result;
  const name = requests.sandwich.function ?? "";
  const total = BigInt(response.total ?? 0);
  const self = BigInt(response.self ?? 0);
  const queryTotal = BigInt(response.queryTotal ?? 0);
  const unit = response.unit ?? "";
  const selections = useMemo(createSelections, [name]);
  const loadSubtree =
    (request: GraphRequest): SubtreeLoader =>
    (path, skip, signal) =>
      loadGraph({ tenant: result.tenant, request: { ...request, path, skip } }, signal);
  const isAverage = BigInt(response.averagedProfiles ?? 0) > 0n;
  return (
    <div class="sandwich">
      <div class="sandwich-part is-callers">
        <h3 class="sandwich-title">Callers</h3>
        <FlameGraph
          graph={callers}
          selection={selections.callers}
          direction="flame"
          loadSubtree={loadSubtree(requests.callers)}
          label="Callers"
        />
      </div>
      <div class="sandwich-function">
        <strong class="function-name" title={showName(name)}>
          {showName(name)}
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
        {result.areSameTime ? null : (
          <span title="Values of callers and callees differ from these. Their shares have been fitted.">
            profiles arrived while it loaded
          </span>
        )}
        <button
          type="button"
          class="button tool-button"
          onClick={() => navigate({ sandwichFunction: undefined })}
        >
          Choose another
        </button>
      </div>
      <div class="sandwich-part">
        <h3 class="sandwich-title">Callees</h3>
        <FlameGraph
          graph={callees}
          selection={selections.callees}
          direction="icicle"
          loadSubtree={loadSubtree(requests.callees)}
          label="Callees"
        />
      </div>
    </div>
  );
}
