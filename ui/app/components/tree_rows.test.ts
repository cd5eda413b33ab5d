// Tests of the rows of the tree view.

import { expect, test } from "vitest";
import type { Graph } from "../graph/graph";
import { shapeOfPreorder } from "../graph/shape";
import { firstExpanded, keyOfPath, keysAbove, pathOfKey, treeRows } from "./tree_rows";

// root > main (> work, > idle with hidden callees), > other
const callees = Uint32Array.from([2, 2, 0, 0, 0]);
const graph = {
  nodeCount: 5,
  callees,
  name: Uint32Array.from([0, 1, 2, 3, 4]),
  names: ["", "main", "work", "idle", "other"],
  ...shapeOfPreorder(callees),
  total: Float64Array.from([10, 8, 6, 2, 2]),
  truncated: Float64Array.from([0, 0, 0, 2, 0]),
} as unknown as Graph;

test("root_and_heaviest_callees_are_expanded_at_first", () => {
  const expanded = firstExpanded(graph);
  expect([...expanded]).toEqual(["", keyOfPath(["main"]), keyOfPath(["main", "work"])]);
  expect(treeRows(graph, expanded).map(({ node, level }) => [node, level])).toEqual([
    [0, 1],
    [1, 2],
    [2, 3],
    [3, 3],
    [4, 2],
  ]);
});

test("hidden_callees_are_a_row_of_their_own", () => {
  const rows = treeRows(graph, new Set(["", keyOfPath(["main"]), keyOfPath(["main", "idle"])]));
  expect(rows.find((row) => row.isHiddenRest)).toMatchObject({ node: 3, level: 4, isExpandable: false });
  expect(rows[2]).toMatchObject({ node: 2, isExpandable: false });
});

test("keys_and_paths_convert_both_ways", () => {
  expect(pathOfKey(keyOfPath(["a", "b c"]))).toEqual(["a", "b c"]);
  expect(pathOfKey("")).toEqual([]);
  expect(pathOfKey(keyOfPath([""]))).toEqual([""]);
  expect(keysAbove(["a", "b"])).toEqual(["", keyOfPath(["a"])]);
});
