// Tests of the totals of a sandwich.

import { expect, test } from "vitest";
import type { Graph } from "../graph/graph";
import { graphOfStacks } from "../graph/testing/stacks";
import { formatPercent } from "../theme/format";
import { loadFittedParts, type SandwichParts } from "./sandwich_parts";

function graphOf(value: bigint, averagedProfiles = 0n): Graph {
  return { ...graphOfStacks([{ frames: ["f"], value }]), averagedProfiles };
}

function partsOf(total: bigint, callers: bigint, callees: bigint, queryTotal = 1_000n): SandwichParts {
  const response = { total: String(total), queryTotal: String(queryTotal) };
  return { response, callers: graphOf(callers), callees: graphOf(callees), warnings: [] };
}

/** Loads the parts in their order. Returns the result and the number of loads. */
async function fitParts(...parts: readonly SandwichParts[]) {
  let loads = 0;
  const fitted = await loadFittedParts(async () => parts[loads++] as SandwichParts);
  return { ...fitted, loads };
}

test("parts with equal totals are loaded once and have the total of the query", async () => {
  const { loads, areSameTime, callers, callees } = await fitParts(partsOf(400n, 400n, 400n));
  expect({ loads, areSameTime }).toEqual({ loads: 1, areSameTime: true });
  expect([callers.queryTotal, callees.queryTotal]).toEqual([1_000n, 1_000n]);
});

test("parts with different totals are loaded until they agree", async () => {
  const result = await fitParts(partsOf(400n, 400n, 500n), partsOf(600n, 600n, 600n));
  expect(result).toMatchObject({ loads: 2, areSameTime: true });
  expect(result.response.total).toBe("600");
});

test("parts that never agree are loaded three times, and no share is over that of the function", async () => {
  const result = await fitParts(
    partsOf(900n, 950n, 1_000n),
    partsOf(950n, 1_000n, 1_050n),
    partsOf(1_000n, 1_050n, 1_100n),
  );
  expect(result).toMatchObject({ loads: 3, areSameTime: false });
  expect(formatPercent(1_050n, result.callers.queryTotal)).toBe(formatPercent(1n, 1n));
  expect(formatPercent(1_100n, result.callees.queryTotal)).toBe(formatPercent(1n, 1n));
});

test("parts that differ in the same way are not loaded a third time", async () => {
  const result = await fitParts(partsOf(400n, 400n, 500n), partsOf(400n, 400n, 500n));
  expect(result).toMatchObject({ loads: 2, areSameTime: false });
});

test("sums of graphs have the share of the averages in the response", async () => {
  const response = { total: "33", queryTotal: "66" };
  const graph = graphOf(100n, 3n);
  const { callers, areSameTime } = await fitParts({ response, callers: graph, callees: graph, warnings: [] });
  expect(areSameTime).toBe(true);
  expect(callers.queryTotal).toBe(200n);
});

test("negative totals keep their share", async () => {
  const { callees } = await fitParts(partsOf(-400n, -400n, -400n, -1_000n));
  expect(callees.queryTotal).toBe(-1_000n);
});
