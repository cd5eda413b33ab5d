// Tests of the views side by side.

import { expect, test } from "vitest";
import { viewsWith } from "./explore_views";

test("view_replaces_that_of_its_pane", () => {
  expect(viewsWith(["flame"], 0, "table")).toEqual(["table"]);
  expect(viewsWith(["flame", "table"], 0, "tree")).toEqual(["tree", "table"]);
  expect(viewsWith(["flame", "table"], 1, "tree")).toEqual(["flame", "tree"]);
});

test("view_that_is_beside_changes_places", () => {
  expect(viewsWith(["flame", "table"], 0, "table")).toEqual(["table", "flame"]);
  expect(viewsWith(["flame", "table"], 1, "flame")).toEqual(["table", "flame"]);
});
