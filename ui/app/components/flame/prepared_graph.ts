// Columns that follow from a graph. All views of the graph share them.

import { NameKinds } from "../../graph/code_kind";
import { type ColorScheme, NameSlots } from "../../graph/colors";
import type { Graph } from "../../graph/graph";
import { type LayoutColumns, prepareLayout } from "../../graph/layout";

/** Graph with its layout columns, kinds of code and color slots. */
export class PreparedGraph {
  readonly graph: Graph;
  readonly columns: LayoutColumns;
  readonly kinds: NameKinds;
  private readonly slots = new Map<ColorScheme, NameSlots>();

  constructor(graph: Graph) {
    this.graph = graph;
    this.columns = prepareLayout(graph);
    this.kinds = new NameKinds(graph);
  }

  /** Returns the color slots of names; undefined if nodes are colored by share. */
  slotsOf(scheme: ColorScheme): NameSlots | undefined {
    if (scheme === "share") return undefined;
    let slots = this.slots.get(scheme);
    if (slots === undefined) {
      slots = new NameSlots(this.graph, this.kinds, scheme);
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
