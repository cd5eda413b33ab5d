// Tests of the facts about frames, compared with sums of stacks.

import { describe, expect, it } from "vitest";
import { findPath } from "../../graph/path";
import { buildTree, graphOfTree, truncateTree } from "../../graph/testing/stacks";
import { announceNode, describeNode, hiddenShare } from "./node_facts";

const STACKS = [
  { frames: ["main.a", "main.b"], value: 600_000_000n },
  { frames: ["main.a", "main.c"], value: 200_000_000n },
  { frames: ["main.a"], value: 100_000_000n },
  { frames: ["main.d"], value: 100_000_000n },
];
const GRAPH = graphOfTree(buildTree(STACKS));
const nodeOf = (...path: string[]) => findPath(GRAPH, path).node;

describe("describeNode", () => {
  it("facts_equal_sums_of_stacks", () => {
    expect(describeNode(GRAPH, nodeOf("main.a", "main.b"), nodeOf("main.a"))).toEqual({
      name: "main.b",
      location: "main.go:14",
      binary: "/usr/bin/shop",
      self: "600 ms",
      total: "600 ms",
      ofAll: "60 %",
      ofZoomed: "66.7 %",
      ofCaller: "66.7 %",
      samples: "60 ± 15 (95 %)",
      hidden: "",
    });
  });

  it("root_has_no_place", () => {
    const facts = describeNode(GRAPH, 0, 0);
    expect(facts).toMatchObject({
      name: "all",
      location: "",
      binary: "",
      ofZoomed: "",
      ofCaller: "",
      total: "1 s",
    });
  });

  it("gauges_are_averages_without_samples", () => {
    const graph = graphOfTree(buildTree(STACKS), { averagedProfiles: 4n, unit: "bytes", period: 512n });
    expect(describeNode(graph, 1, 0)).toMatchObject({ total: "225 MB", ofAll: "90 %", samples: "" });
  });

  it("truncated_node_states_what_it_hides", () => {
    const graph = graphOfTree(truncateTree(buildTree(STACKS), 1));
    expect(hiddenShare(graph, 1)).toBe("22.2 %");
    expect(announceNode(graph, 1)).toBe(
      "main.a; total 900 ms, 90 % of all; self 100 ms; 90 % of its caller; level 2; 1 callee; 22.2 % hidden, opens with Enter",
    );
  });

  it("hostile_names_are_spelled_out", () => {
    const graph = graphOfTree(buildTree([{ frames: ["a\u202eb", ""], value: 10n }]));
    expect(describeNode(graph, 1, 0).name).toBe("a<202E>b");
    expect(describeNode(graph, 2, 0).name).toBe("(no name)");
    // The function without a name shares its entry with the root.
    const placed = { ...graph, nameFile: graph.nameFile.map(() => 1) };
    expect(describeNode(placed, 2, 0).location).not.toBe("");
    expect(describeNode(placed, 0, 0)).toMatchObject({ name: "all", location: "", binary: "" });
  });
});
