// Tests of the columns of the fleet.
import { beforeAll, expect, test, vi } from "vitest";
import { FLEET_SORT_COLUMNS } from "../url/view_state";

beforeAll(() => {
  vi.stubGlobal("location", { pathname: "/ui/", search: "", hostname: "localhost" });
  vi.stubGlobal("document", { baseURI: "http://localhost/ui/", addEventListener: () => {} });
  vi.stubGlobal("history", { state: null });
  vi.stubGlobal("localStorage", { getItem: () => null, setItem: () => {} });
  vi.stubGlobal("fetch", () => new Promise(() => {}));
});

test("links_may_sort_by_each_column_that_sorts", async () => {
  const { fleetColumns } = await import("./fleet_columns");
  const range = { start: 0, end: 60_000, step: 15_000 };
  const data = { rows: [], warnings: [], range, label: "pod", profileType: "a:b:count::" };
  const sorted = fleetColumns(data, 0n).flatMap(({ key, canSort }) => (canSort === true ? [key] : []));
  expect(sorted.sort()).toEqual([...FLEET_SORT_COLUMNS].sort());
});
