// Tests of the views side by side.

import { beforeAll, expect, test, vi } from "vitest";
import { DEFAULT_VIEW } from "../url/view_state";

type ExploreViews = typeof import("./explore_views");

let changeToView: ExploreViews["changeToView"];
let viewsWith: ExploreViews["viewsWith"];
let store: typeof import("../url/store");

beforeAll(async () => {
  // The store reads the page's address when it is imported.
  vi.stubGlobal("location", new URL("http://127.0.0.1/ui/"));
  vi.stubGlobal("history", { state: null, pushState: vi.fn(), replaceState: vi.fn() });
  ({ changeToView, viewsWith } = await import("./explore_views"));
  store = await import("../url/store");
});

test("view_replaces_that_of_its_pane", () => {
  expect(viewsWith(["flame"], 0, "table")).toEqual(["table"]);
  expect(viewsWith(["flame", "table"], 0, "tree")).toEqual(["tree", "table"]);
  expect(viewsWith(["flame", "table"], 1, "tree")).toEqual(["flame", "tree"]);
});

test("view_that_is_beside_changes_places", () => {
  expect(viewsWith(["flame", "table"], 0, "table")).toEqual(["table", "flame"]);
  expect(viewsWith(["flame", "table"], 1, "flame")).toEqual(["table", "flame"]);
});

test("sandwich_opens_with_selected_function", () => {
  const state = { ...DEFAULT_VIEW, views: ["tree"] as const, selectedPath: ["main", "work"] };
  expect(changeToView(state, 0, "sandwich")).toEqual({ views: ["sandwich"], sandwichFunction: "work" });
  expect(changeToView({ ...state, frames: "file" }, 0, "sandwich")).toEqual({ views: ["sandwich"] });
  expect(changeToView({ ...state, frames: "label:pod", selectedPath: ["a"] }, 0, "sandwich")).toEqual({
    views: ["sandwich"],
  });
  expect(changeToView({ ...state, selectedPath: [] }, 0, "sandwich")).toEqual({ views: ["sandwich"] });
  expect(changeToView(state, 0, "table")).toEqual({ views: ["table"] });
});

test("open_sandwich_keeps_its_function", () => {
  const state = { ...DEFAULT_VIEW, views: ["sandwich"] as const, selectedPath: ["main", "work"] };
  expect(changeToView(state, 0, "sandwich")).toEqual({ views: ["sandwich"] });
});

test("closed_sandwich_keeps_its_function_until_selection_changes", () => {
  store.navigate({ views: ["sandwich"], sandwichFunction: "picked", selectedPath: ["main", "work"] });
  store.navigate({ views: ["flame"] });
  expect(changeToView(store.view.value, 0, "sandwich")).toEqual({ views: ["sandwich"] });
  store.navigate({ selectedPath: ["main", "rest"] });
  expect(changeToView(store.view.value, 0, "sandwich")).toEqual({
    views: ["sandwich"],
    sandwichFunction: "rest",
  });
});
