// Tests of the zooms that Escape undoes.

import { beforeAll, describe, expect, it, vi } from "vitest";
import { buildTree, graphOfTree, truncateTree } from "../../graph/testing/stacks";
import type { ZoomHistory } from "./zoom_history";

const TREE = buildTree([
  { frames: ["a", "b"], value: 1n },
  { frames: ["a", "c"], value: 5n },
  { frames: ["z"], value: 9n },
]);
const graph = graphOfTree(TREE);
let createHistory: (...paths: readonly (readonly string[])[]) => ZoomHistory;

beforeAll(async () => {
  vi.stubGlobal("location", { pathname: "/ui/", search: "", hostname: "localhost" });
  vi.stubGlobal("history", { state: null });
  const module = await import("./zoom_history");
  createHistory = (...paths) => {
    const history = new module.ZoomHistory();
    for (const path of paths) history.push(path);
    return history;
  };
});

describe("ZoomHistory", () => {
  it("current_path_is_skipped", () => {
    const history = createHistory([], ["a"]);
    expect(history.takePrevious(graph, ["a"])).toEqual([]);
    expect(history.takePrevious(graph, [])).toBeUndefined();
  });

  it("path_that_the_graph_lacks_is_skipped", () => {
    expect(createHistory(["z"], ["gone"]).takePrevious(graph, ["a"])).toEqual(["z"]);
    expect(createHistory(["a.go"]).takePrevious(graph, ["a"])).toBeUndefined();
  });

  it("path_in_a_truncated_part_is_kept", () => {
    const truncated = graphOfTree(truncateTree(TREE, 1));
    expect(createHistory(["a", "b"]).takePrevious(truncated, ["z"])).toEqual(["a", "b"]);
  });

  it("paths_of_other_frames_are_forgotten", () => {
    const history = createHistory();
    history.follow("function");
    history.push(["a"]);
    history.follow("function");
    history.push(["z"]);
    expect(history.takePrevious(graph, [])).toEqual(["z"]);
    history.follow("file");
    expect(history.takePrevious(graph, [])).toBeUndefined();
  });
});
