// Tests of the zooms that Escape undoes.

import { beforeAll, describe, expect, it, vi } from "vitest";
import { buildTree, graphOfTree, truncateTree } from "../../graph/testing/stacks";
import type { FrameZoom } from "./selection";
import type { ZoomHistory } from "./zoom_history";

const TREE = buildTree([
  { frames: ["a", "b"], value: 1n },
  { frames: ["a", "c"], value: 5n },
  { frames: ["z"], value: 9n },
]);
const graph = graphOfTree(TREE);
const CONTENT = { frames: "function", profiles: "" };
let createHistory: (...zooms: readonly FrameZoom[]) => ZoomHistory;

function zoomTo(...path: readonly string[]): FrameZoom {
  return { path, range: undefined };
}

beforeAll(async () => {
  vi.stubGlobal("location", { pathname: "/ui/", search: "", hostname: "localhost" });
  vi.stubGlobal("history", { state: null });
  const module = await import("./zoom_history");
  createHistory = (...zooms) => {
    const history = new module.ZoomHistory();
    history.follow(CONTENT);
    for (const zoom of zooms) history.push(zoom);
    return history;
  };
});

describe("ZoomHistory", () => {
  it("current_zoom_is_skipped", () => {
    const history = createHistory(zoomTo(), zoomTo("a"));
    expect(history.takePrevious(graph, zoomTo("a"))).toEqual(zoomTo());
    expect(history.takePrevious(graph, zoomTo())).toBeUndefined();
  });

  it("ranges_of_merged_frames_are_zooms", () => {
    const outer = { path: ["a"], range: { from: 0.25, to: 0.5 } };
    const inner = { path: ["a"], range: { from: 0.25, to: 0.3 } };
    const history = createHistory(zoomTo("a"), outer, inner);
    expect(history.takePrevious(graph, inner)).toEqual(outer);
    expect(history.takePrevious(graph, outer)).toEqual(zoomTo("a"));
  });

  it("ranges_of_other_profiles_are_forgotten", () => {
    const history = createHistory(zoomTo("z"), { path: [], range: { from: 0, to: 0.5 } });
    history.follow({ ...CONTENT, profiles: "other" });
    expect(history.takePrevious(graph, zoomTo("a"))).toEqual(zoomTo("z"));
  });

  it("path_that_the_graph_lacks_is_skipped", () => {
    expect(createHistory(zoomTo("z"), zoomTo("gone")).takePrevious(graph, zoomTo("a"))).toEqual(zoomTo("z"));
    expect(createHistory(zoomTo("a.go")).takePrevious(graph, zoomTo("a"))).toBeUndefined();
  });

  it("path_in_a_truncated_part_is_kept", () => {
    const truncated = graphOfTree(truncateTree(TREE, 1));
    expect(createHistory(zoomTo("a", "b")).takePrevious(truncated, zoomTo("z"))).toEqual(zoomTo("a", "b"));
  });

  it("paths_of_other_frames_are_forgotten", () => {
    const history = createHistory(zoomTo("a"));
    history.follow(CONTENT);
    history.push(zoomTo("z"));
    expect(history.takePrevious(graph, zoomTo())).toEqual(zoomTo("z"));
    history.follow({ ...CONTENT, frames: "file" });
    expect(history.takePrevious(graph, zoomTo())).toBeUndefined();
  });
});
