// Columns that follow from a graph. All views of the graph share them.

import { classifyNames } from "../../graph/code_kind";
import { type ColorScheme, slotsOfNames } from "../../graph/colors";
import type { Graph } from "../../graph/graph";
import { type LayoutColumns, prepareLayout } from "../../graph/layout";

/** Graph with its layout columns, kinds of code and color slots. */
export class PreparedGraph {
  readonly graph: Graph;
  readonly columns: LayoutColumns;
  /** Kind of code of each name. */
  readonly kinds: Uint8Array;
  private readonly slots = new Map<ColorScheme, Uint8Array>();

  constructor(graph: Graph) {
    this.graph = graph;
    this.columns = prepareLayout(graph);
    this.kinds = classifyNames(graph);
  }

  /** Returns the color slot of each name; undefined if nodes are colored by share. */
  slotsOf(scheme: ColorScheme): Uint8Array | undefined {
    if (scheme === "share") return undefined;
    let slots = this.slots.get(scheme);
    if (slots === undefined) {
      slots = slotsOfNames(this.graph, this.kinds, scheme);
      this.slots.set(scheme, slots);
    }
    return slots;
  }
}

const preparedGraphs = new WeakMap<Graph, PreparedGraph>();

export function prepareGraph(graph: Graph): PreparedGraph {
  let prepared = preparedGraphs.get(graph);
  if (prepared === undefined) {
    prepared = new PreparedGraph(graph);
    preparedGraphs.set(graph, prepared);
  }
  return prepared;
}
