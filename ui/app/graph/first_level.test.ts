// Tests of graphs whose root becomes the first level.

import { expect, test } from "vitest";
import { frameNameOf, nameFirstLevel } from "./first_level";
import { pathOfNode } from "./path";
import { MAX_DEPTH, shapeOfPreorder } from "./shape";
import { SeededRandom } from "./testing/random";
import { graphOfStacks, randomStacks } from "./testing/stacks";
import { summedValue } from "./values";

const FRAME = { name: "f", line: 7, file: "f.go", binary: "app", package: "main" };

test("former root is the only callee of the root and has its name and place", () => {
  const former = graphOfStacks(randomStacks(new SeededRandom(5), 40, 9));
  const graph = nameFirstLevel(former, FRAME);
  expect(graph.nodeCount).toBe(former.nodeCount + 1);
  expect(frameNameOf(graph, 1)).toEqual(FRAME);
  for (let node = 0; node < former.nodeCount; node++) {
    expect(pathOfNode(graph, node + 1)).toEqual(["f", ...pathOfNode(former, node)]);
    for (const column of ["self", "total", "truncated"] as const)
      expect(summedValue(graph, node + 1, column)).toBe(summedValue(former, node, column));
  }
  expect(graph).toMatchObject(shapeOfPreorder(graph.callees));
  expect(summedValue(graph, 0, "total")).toBe(summedValue(former, 0, "total"));
  expect(graph.rootCallees).toBe(1n);
});

test("values beyond 2^53 stay exact", () => {
  const value = 2n ** 60n + 1n;
  const stacks = [
    { frames: ["a"], value },
    { frames: [], value: 1n },
  ];
  const graph = nameFirstLevel(graphOfStacks(stacks), FRAME);
  expect([0, 1, 2].map((node) => summedValue(graph, node, "total"))).toEqual([value + 1n, value + 1n, value]);
});

test("tree that becomes too deep is rejected", () => {
  const graph = graphOfStacks([{ frames: ["a"], value: 1n }]);
  const deep = { ...graph, depth: Uint16Array.of(0, MAX_DEPTH) };
  expect(() => nameFirstLevel(deep, FRAME)).toThrow("deeper than 65535 frames");
});
