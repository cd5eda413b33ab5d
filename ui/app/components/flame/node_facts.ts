// Facts about a node as text: for the tooltip and for screen readers.

import { ROOT_LABEL } from "../../canvas/flame_painter";
import type { Graph } from "../../graph/graph";
import { showName } from "../../graph/names";
import { nameOfNode } from "../../graph/path";
import { countSamples, displayedValue, summedValue } from "../../graph/values";
import { formatExact, formatPercent, formatValue } from "../../theme/format";

/** Texts about one node. Empty where the graph states nothing. */
export interface NodeFacts {
  readonly name: string;
  readonly location: string;
  readonly binary: string;
  readonly self: string;
  readonly total: string;
  readonly ofAll: string;
  readonly ofZoomed: string;
  readonly ofCaller: string;
  readonly samples: string;
  /** Share of the node's total that the server left out; empty if nothing. */
  readonly hidden: string;
}

export function displayNodeName(graph: Graph, node: number): string {
  return node === 0 ? ROOT_LABEL : showName(nameOfNode(graph, node));
}

/** Returns the facts about a node, with its share of the zoomed node. */
export function describeNode(graph: Graph, node: number, zoomedNode: number): NodeFacts {
  const index = graph.name[node] as number;
  const file = graph.files[graph.nameFile[index] as number] as string;
  const line = graph.nameLine[index] as number;
  const total = summedValue(graph, node, "total");
  const caller = graph.parent[node] as number;
  const valueText = (column: "self" | "total") =>
    formatValue(displayedValue(graph, node, column), graph.unit);
  return {
    name: displayNodeName(graph, node),
    // A function without a name has the same entry in the names as the root.
    location: node === 0 || file === "" ? "" : showName(line === 0 ? file : `${file}:${line}`),
    binary: node === 0 ? "" : showBinary(graph.binaries[graph.nameBinary[index] as number] as string),
    self: valueText("self"),
    total: valueText("total"),
    ofAll: formatPercent(total, graph.queryTotal),
    ofZoomed: zoomedNode === 0 ? "" : formatPercent(total, summedValue(graph, zoomedNode, "total")),
    ofCaller: caller < 0 ? "" : formatPercent(total, summedValue(graph, caller, "total")),
    samples: describeSamples(graph, total),
    hidden: hiddenShare(graph, node),
  };
}

function showBinary(binary: string): string {
  return binary === "" ? "" : showName(binary);
}

function describeSamples(graph: Graph, total: bigint): string {
  const count = countSamples(total, graph);
  if (count === undefined) return "";
  return `${formatExact(count.samples, "")} ± ${formatExact(count.margin, "")} (95 %)`;
}

/** Returns the share of a node's total that the server left out below it. */
export function hiddenShare(graph: Graph, node: number): string {
  const truncated = summedValue(graph, node, "truncated");
  return truncated === 0n ? "" : formatPercent(truncated, summedValue(graph, node, "total"));
}

/** Returns the text that screen readers speak when a node is selected. */
export function announceNode(graph: Graph, node: number): string {
  const facts = describeNode(graph, node, 0);
  const callees = graph.callees[node] as number;
  const parts = [
    facts.name,
    `total ${facts.total}, ${facts.ofAll} of all`,
    `self ${facts.self}`,
    facts.ofCaller === "" ? "" : `${facts.ofCaller} of its caller`,
    `level ${(graph.depth[node] as number) + 1}`,
    callees === 1 ? "1 callee" : `${callees} callees`,
    facts.hidden === "" ? "" : `${facts.hidden} hidden, opens with Enter`,
  ];
  return parts.filter((part) => part !== "").join("; ");
}
