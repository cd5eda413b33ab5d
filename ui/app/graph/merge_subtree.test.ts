// Tests of merging subtrees: a truncated graph that is opened node by node becomes the whole graph.

import { describe, expect, it } from "vitest";
import type { Graph } from "./graph";
import { prepareLayout } from "./layout";
import { mergeSubtree } from "./merge_subtree";
import { findPath, nameOfNode, pathOfNode } from "./path";
import { SeededRandom } from "./testing/random";
import { buildTree, graphOfTree, type OracleNode, randomStacks, truncateTree } from "./testing/stacks";
import { summedValue } from "./values";

const SEEDS = Array.from({ length: 25 }, (_, index) => index + 1);

/** Response to a request with `path` and `skip`. */
function fetchSubtree(tree: OracleNode, path: readonly string[], skip: number, width: number): Graph {
  let node = tree;
  for (const name of path) node = node.callees.find((callee) => callee.name === name) as OracleNode;
  const rest = { ...node, name: "", callees: node.callees.slice(skip) };
  return graphOfTree(truncateTree(rest, width));
}

function linesOf(graph: Graph): string[] {
  const lines: string[] = [];
  for (let node = 0; node < graph.nodeCount; node++) {
    const values = [
      summedValue(graph, node, "self"),
      summedValue(graph, node, "total"),
      summedValue(graph, node, "truncated"),
    ];
    const file = graph.files[graph.nameFile[graph.name[node] as number] as number];
    lines.push(`${pathOfNode(graph, node).join(" > ")} ${values.join(" ")} ${file} ${graph.depth[node]}`);
  }
  return lines;
}

function openAll(graph: Graph, tree: OracleNode, width: number): Graph {
  let opened = graph;
  for (let round = 0; round < 10_000; round++) {
    const node = opened.truncated.findIndex((value) => value > 0);
    if (node < 0) return opened;
    opened = mergeSubtree(
      opened,
      node,
      fetchSubtree(tree, pathOfNode(opened, node), opened.callees[node] as number, width),
    );
  }
  throw new Error("nodes stay truncated");
}

describe("mergeSubtree", () => {
  it.each(SEEDS)("opening_all_nodes_gives_the_whole_graph (seed %i)", (seed) => {
    const random = new SeededRandom(seed);
    const tree = buildTree(randomStacks(random, 60, 7));
    const width = 1 + random.below(2);
    const opened = openAll(graphOfTree(truncateTree(tree, width)), tree, width);
    expect(linesOf(opened)).toEqual(linesOf(graphOfTree(tree)));
    const whole = graphOfTree(tree);
    expect(Array.from(opened.end)).toEqual(Array.from(whole.end));
    expect(Array.from(opened.callees)).toEqual(Array.from(whole.callees));
  });

  it.each(SEEDS)("merging_moves_no_box (seed %i)", (seed) => {
    const tree = buildTree(randomStacks(new SeededRandom(seed), 60, 7));
    const graph = graphOfTree(truncateTree(tree, 2));
    const node = graph.truncated.findLastIndex((value) => value > 0);
    if (node < 0) return;
    const opened = mergeSubtree(graph, node, fetchSubtree(tree, pathOfNode(graph, node), 2, 99));
    const before = prepareLayout(graph).start;
    const after = prepareLayout(opened).start;
    for (let old = 0; old < graph.nodeCount; old++) {
      const match = findPath(opened, pathOfNode(graph, old));
      const scale = Number(graph.divisor) / Number(opened.divisor);
      expect(after[match.node]).toBe((before[old] as number) * scale);
    }
  });

  it("values_beyond_2_53_stay_exact", () => {
    const big = 2n ** 61n + 1n;
    const tree = buildTree([
      { frames: ["a", "b"], value: big },
      { frames: ["a", "c"], value: 3n },
      { frames: ["d"], value: 4n },
    ]);
    const opened = openAll(graphOfTree(truncateTree(tree, 1)), tree, 1);
    expect(linesOf(opened)).toEqual(linesOf(graphOfTree(tree)));
  });

  it("heavier_callees_than_truncated_weight_grow_the_callers", () => {
    const graph = graphOfTree({
      name: "",
      callees: [{ name: "a", callees: [], self: 1n, truncated: 4n }],
      self: 0n,
      truncated: 0n,
    });
    const subtree = graphOfTree({
      name: "",
      callees: [{ name: "b", callees: [], self: 6n, truncated: 0n }],
      self: 1n,
      truncated: 0n,
    });
    const opened = mergeSubtree(graph, 1, subtree);
    expect(nameOfNode(opened, 2)).toBe("b");
    expect(summedValue(opened, 0, "total")).toBe(7n);
    expect(summedValue(opened, 1, "truncated")).toBe(0n);
  });
});
