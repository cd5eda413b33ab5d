// Tests of opening truncated nodes.

import { describe, expect, it } from "vitest";
import { findPath } from "../../graph/path";
import { buildTree, graphOfTree, type OracleNode, truncateTree } from "../../graph/testing/stacks";
import { GraphExpansion, type SubtreeLoader } from "./expansion";

const TREE = buildTree([
  { frames: ["a", "b", "c", "d"], value: 1n },
  { frames: ["a", "x"], value: 5n },
  { frames: ["a", "b", "y"], value: 2n },
  { frames: ["z"], value: 9n },
]);

function loaderOf(tree: OracleNode, calls: string[]): SubtreeLoader {
  return async (path, skip) => {
    calls.push(`${path.join(">")} ${skip}`);
    let node = tree;
    for (const name of path) node = node.callees.find((callee) => callee.name === name) as OracleNode;
    return graphOfTree(truncateTree({ ...node, name: "", callees: node.callees.slice(skip) }, 1));
  };
}

const { signal } = new AbortController();

describe("GraphExpansion", () => {
  it("path_below_truncated_nodes_is_opened_step_by_step", async () => {
    const calls: string[] = [];
    const expansion = new GraphExpansion(graphOfTree(truncateTree(TREE, 1)));
    await expansion.openPath(["a", "b", "c", "d"], loaderOf(TREE, calls), signal);
    expect(findPath(expansion.graph.value, ["a", "b", "c", "d"]).matched).toBe(4);
    expect(calls).toEqual([" 1", "a 1", "a>b 1"]);
    expect(expansion.loadingCount.value).toBe(0);
  });

  it("unknown_path_stops_where_nothing_is_truncated", async () => {
    const calls: string[] = [];
    const expansion = new GraphExpansion(graphOfTree(truncateTree(TREE, 1)));
    await expansion.openPath(["gone"], loaderOf(TREE, calls), signal);
    expect(findPath(expansion.graph.value, ["gone"])).toEqual({ node: 0, matched: 0 });
    expect(calls).toEqual([" 1"]);
  });

  it("node_that_is_opened_by_two_views_is_fetched_once", async () => {
    const calls: string[] = [];
    const expansion = new GraphExpansion(graphOfTree(truncateTree(TREE, 1)));
    const load = loaderOf(TREE, calls);
    await Promise.all([expansion.openNode(0, load, signal), expansion.openNode(0, load, signal)]);
    expect(calls).toHaveLength(1);
  });

  it("failed_attempt_is_known_until_it_is_forgotten", async () => {
    const expansion = new GraphExpansion(graphOfTree(truncateTree(TREE, 1)));
    const fail: SubtreeLoader = async () => {
      throw new Error("refused");
    };
    await expect(expansion.openNode(0, fail, signal)).rejects.toThrow("refused");
    expect(expansion.outcomeOf([])).toBe("failed");
    expect(expansion.loadingCount.value).toBe(0);
    expansion.forgetFailures();
    expect(expansion.outcomeOf([])).toBeUndefined();
    await expansion.openNode(0, loaderOf(TREE, []), signal);
    expansion.forgetFailures();
    expect(expansion.outcomeOf([])).toBe("added");
  });

  it("aborted_attempt_has_no_outcome", async () => {
    const expansion = new GraphExpansion(graphOfTree(truncateTree(TREE, 1)));
    const controller = new AbortController();
    const load: SubtreeLoader = async () => {
      controller.abort();
      throw controller.signal.reason;
    };
    await expect(expansion.openNode(0, load, controller.signal)).rejects.toThrow();
    expect(expansion.outcomeOf([])).toBeUndefined();
  });
});
