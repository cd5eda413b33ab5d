// Tests of trees in JSON that become graphs.

import { describe, expect, it } from "vitest";
import { graphFromTree } from "./from_tree";
import { nameOfNode } from "./path";
import { summedValue } from "./values";
import { GraphFormatError } from "./wire";

const ORIGIN = { queryTotal: 100n, unit: "count" };

describe("graphFromTree", () => {
  it("siblings_are_ordered_by_total_and_rest_is_truncated", () => {
    const graph = graphFromTree(
      {
        names: ["", "a", "b", "other"],
        nodes: [
          { total: "100" },
          { name: 1, total: "20", self: "20" },
          { name: 2, total: "60", self: "10" },
          { name: 3, parent: 2, total: "50", other: true },
          { name: 3, total: "20", other: true },
        ],
      },
      ORIGIN,
    );
    expect(graph.nodeCount).toBe(3);
    expect([1, 2].map((node) => nameOfNode(graph, node))).toEqual(["b", "a"]);
    expect(summedValue(graph, 0, "truncated")).toBe(20n);
    expect(summedValue(graph, 1, "truncated")).toBe(50n);
    expect(summedValue(graph, 1, "self")).toBe(10n);
    expect(graph.divisor).toBe(10n);
  });

  it("values_beyond_2_53_stay_exact", () => {
    const total = (2n ** 60n + 1n).toString();
    const graph = graphFromTree(
      { names: ["", "a"], nodes: [{ total }, { name: 1, total, self: total }] },
      ORIGIN,
    );
    expect(summedValue(graph, 1, "total")).toBe(2n ** 60n + 1n);
  });

  it("empty_tree_is_a_root", () => {
    expect(graphFromTree({}, ORIGIN).nodeCount).toBe(1);
  });

  it("cycle_and_unknown_name_are_rejected", () => {
    expect(() => graphFromTree({ names: [""], nodes: [{}, { parent: 1 }] }, ORIGIN)).toThrow(
      GraphFormatError,
    );
    expect(() => graphFromTree({ names: [""], nodes: [{ name: 4 }] }, ORIGIN)).toThrow(GraphFormatError);
  });
});
