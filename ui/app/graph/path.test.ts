// Tests of paths, neighbors and displayed values.

import { describe, expect, it } from "vitest";
import { findPath, nameOfNode, neighborsOfNode, pathOfNode } from "./path";
import { SeededRandom } from "./testing/random";
import { graphOfStacks, randomStacks } from "./testing/stacks";
import { averageOf, countSamples } from "./values";

describe("paths", () => {
  it("path_of_each_node_leads_back_to_it", () => {
    const graph = graphOfStacks(randomStacks(new SeededRandom(2), 90, 9));
    for (let node = 0; node < graph.nodeCount; node++) {
      const path = pathOfNode(graph, node);
      expect(findPath(graph, path)).toEqual({ node, matched: path.length });
    }
  });

  it("missing_path_ends_at_the_nearest_ancestor", () => {
    const graph = graphOfStacks([{ frames: ["a", "b"], value: 1n }]);
    expect(findPath(graph, ["a", "x", "b"])).toEqual({ node: 1, matched: 1 });
    expect(findPath(graph, ["x"])).toEqual({ node: 0, matched: 0 });
  });

  it("neighbors_follow_the_tree", () => {
    const graph = graphOfStacks([
      { frames: ["a", "b"], value: 9n },
      { frames: ["a", "c"], value: 5n },
      { frames: ["a", "d"], value: 3n },
    ]);
    const middle = neighborsOfNode(graph, 3);
    expect(nameOfNode(graph, middle.caller)).toBe("a");
    expect(nameOfNode(graph, middle.previousSibling)).toBe("b");
    expect(nameOfNode(graph, middle.nextSibling)).toBe("d");
    expect(middle.heaviestCallee).toBe(-1);
    expect(neighborsOfNode(graph, 0)).toEqual({
      caller: -1,
      heaviestCallee: 1,
      previousSibling: -1,
      nextSibling: -1,
    });
    expect(neighborsOfNode(graph, 4).nextSibling).toBe(-1);
  });
});

describe("values", () => {
  it.each([
    [7n, 2n, 4n],
    [-7n, 2n, -4n],
    [5n, 4n, 1n],
    [6n, 4n, 2n],
    [9n, 0n, 9n],
    [2n ** 62n, 3n, 1537228672809129301n],
  ])("average_of_%s_over_%s_is_%s", (sum, profiles, average) => {
    expect(averageOf(sum, profiles)).toBe(average);
  });

  it("samples_have_the_margin_of_a_poisson_count", () => {
    expect(countSamples(1_000n, { period: 10n, averagedProfiles: 0n })).toEqual({
      samples: 100n,
      margin: 20n,
    });
    expect(countSamples(1_000n, { period: 0n, averagedProfiles: 0n })).toBeUndefined();
    expect(countSamples(1_000n, { period: 10n, averagedProfiles: 2n })).toBeUndefined();
  });
});
