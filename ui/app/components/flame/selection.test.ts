// Tests of zoomed ranges, which are shares of one graph.

import { beforeAll, beforeEach, expect, test, vi } from "vitest";

let store: typeof import("../../url/store");
let createLocalSelection: typeof import("./selection")["createLocalSelection"];
let linkOfView: typeof import("../shell/copy_link")["linkOfView"];

beforeAll(async () => {
  vi.stubGlobal("location", { pathname: "/ui/", search: "", hostname: "localhost" });
  vi.stubGlobal("history", { state: null, pushState: vi.fn(), replaceState: vi.fn() });
  vi.stubGlobal("document", { baseURI: "http://localhost/ui/" });
  store = await import("../../url/store");
  ({ createLocalSelection } = await import("./selection"));
  ({ linkOfView } = await import("../shell/copy_link"));
});

beforeEach(() => store.navigate({ from: "now-1h", transforms: [], zoomPath: [] }));

test("range_of_local_selection_ends_with_another_graph", () => {
  const selection = createLocalSelection(false);
  const range = { from: 0.25, to: 0.5 };
  selection.zoomTo({ path: ["main"], range }, []);
  store.navigate({ search: "a" });
  expect(selection.zoomRange.value).toEqual(range);
  store.navigate({ transforms: [{ action: "focus", pattern: "main", isRegex: false }] });
  expect(selection.zoomRange.value).toBeUndefined();
  expect(selection.zoomPath.value).toEqual(["main"]);
});

test("copied_link_with_fixed_times_keeps_range", () => {
  store.navigate({ zoomRange: "0.25-0.5" });
  expect(new URL(linkOfView(false)).searchParams.get("zr")).toBe("0.25-0.5");
  expect(new URL(linkOfView(true)).searchParams.get("zr")).toBe("0.25-0.5");
  expect(new URL(linkOfView(false, { zoomPath: ["main"] })).searchParams.get("zr")).toBeNull();
});
