// Tests of the layout: boxes against plain geometry, and the bound of boxes a row.

import { describe, expect, it } from "vitest";
import type { Graph } from "./graph";
import {
  BoxKind,
  BoxList,
  findBoxAt,
  type GraphViewport,
  layOutBoxes,
  prepareLayout,
  rangeOfNode,
} from "./layout";
import { SeededRandom } from "./testing/random";
import { buildTree, graphOfStacks, graphOfTree, randomStacks, truncateTree } from "./testing/stacks";

const SEEDS = Array.from({ length: 30 }, (_, index) => index + 1);

function layOut(graph: Graph, change: Partial<GraphViewport> = {}): BoxList {
  const boxes = new BoxList();
  const viewport = {
    from: 0,
    to: graph.total[0] as number,
    widthPixels: 1000,
    firstDepth: 0,
    lastDepth: 100,
  };
  layOutBoxes(graph, prepareLayout(graph), { ...viewport, ...change }, boxes);
  return boxes;
}

describe("layOutBoxes", () => {
  it("last_depth_is_that_of_the_deepest_box", () => {
    const light = { frames: ["main", "light", ...Array.from({ length: 60 }, (_, index) => `deep${index}`)] };
    const graph = graphOfStacks([
      { frames: ["main", "heavy", "leaf"], value: 1_000_000n },
      { ...light, value: 1n },
    ]);
    expect(layOut(graph).lastDepth).toBe(3);
    expect(layOut(graph, { widthPixels: 2_000_000 }).lastDepth).toBe(62);
  });

  it.each(SEEDS)("every_wide_visible_node_has_its_box (seed %i)", (seed) => {
    const random = new SeededRandom(seed);
    const graph = graphOfTree(truncateTree(buildTree(randomStacks(random, 80, 10)), 3));
    const columns = prepareLayout(graph);
    const whole = graph.total[0] as number;
    const from = random.next() * whole * 0.8;
    const to = from + Math.max(1, random.next() * (whole - from));
    const firstDepth = random.below(3);
    const boxes = layOut(graph, { from, to, firstDepth });
    const scale = 1000 / (to - from);
    for (let node = 0; node < graph.nodeCount; node++) {
      const range = rangeOfNode(graph, columns, node);
      const isVisible = range.to > from && range.from < to && (graph.depth[node] as number) >= firstDepth;
      const isWide = (graph.total[node] as number) * scale >= 1;
      const index = boxes.node
        .subarray(0, boxes.count)
        .findIndex((boxNode, box) => boxNode === node && boxes.kind[box] === BoxKind.frame);
      if (!isVisible || !isWide) continue;
      expect(index).toBeGreaterThanOrEqual(0);
      expect(boxes.left[index]).toBeCloseTo(Math.max(-1, (range.from - from) * scale), 2);
    }
  });

  it.each(SEEDS)("rows_are_sorted_and_disjoint (seed %i)", (seed) => {
    const graph = graphOfTree(truncateTree(buildTree(randomStacks(new SeededRandom(seed), 300, 8)), 20));
    const boxes = layOut(graph, { widthPixels: 60 });
    for (let depth = 0; depth < boxes.rowStart.length - 1; depth++) {
      const { first, end } = boxes.rowOf(depth);
      expect(end - first).toBeLessThanOrEqual(2 * 62);
      for (let box = first + 1; box < end; box++) {
        const before = (boxes.left[box - 1] as number) + (boxes.width[box - 1] as number);
        expect(boxes.left[box]).toBeGreaterThanOrEqual(before - 0.01);
      }
    }
  });

  it("flat_graph_of_many_callees_needs_no_more_boxes_than_pixels", () => {
    const stacks = Array.from({ length: 50_000 }, (_, index) => ({
      frames: [`f${index}`],
      value: BigInt(1 + (index % 7)),
    }));
    const callees = stacks.map(({ frames, value }) => ({
      name: frames[0] as string,
      callees: [],
      self: value,
      truncated: 0n,
    }));
    callees.sort((first, second) => Number(second.self - first.self));
    const graph = graphOfTree({ name: "", callees, self: 0n, truncated: 0n });
    const boxes = layOut(graph);
    expect(boxes.count).toBe(2);
    expect(boxes.kind[1]).toBe(BoxKind.merged);
    expect(boxes.width[1]).toBeCloseTo(1000, 3);
    const whole = graph.total[0] as number;
    const zoomed = layOut(graph, { from: whole * 0.6, to: whole * 0.6 + 50 });
    expect(zoomed.count).toBeGreaterThan(5);
    expect(zoomed.count).toBeLessThan(60);
  });

  it("truncated_weight_has_a_box_between_callees_and_self", () => {
    const root = {
      name: "",
      callees: [{ name: "a", callees: [], self: 50n, truncated: 0n }],
      self: 20n,
      truncated: 30n,
    };
    const boxes = layOut(graphOfTree(root));
    expect(Array.from(boxes.kind.subarray(0, boxes.count))).toEqual([
      BoxKind.frame,
      BoxKind.frame,
      BoxKind.hidden,
    ]);
    expect(boxes.left[2]).toBeCloseTo(500);
    expect(boxes.width[2]).toBeCloseTo(300);
    expect(boxes.node[2]).toBe(0);
  });

  it("box_is_found_by_its_pixels", () => {
    const graph = graphOfStacks([
      { frames: ["a", "b"], value: 750n },
      { frames: ["c"], value: 250n },
    ]);
    const boxes = layOut(graph);
    expect(boxes.node[findBoxAt(boxes, 1, 749)]).toBe(1);
    expect(boxes.node[findBoxAt(boxes, 1, 751)]).toBe(3);
    expect(findBoxAt(boxes, 2, 751)).toBe(-1);
    expect(findBoxAt(boxes, 99, 10)).toBe(-1);
  });

  it("graph_without_samples_has_no_boxes", () => {
    const graph = graphOfStacks([]);
    expect(layOut(graph, { from: 0, to: 1 }).count).toBe(0);
  });
});
