// Tests of what another query begins without.
import { expect, test } from "vitest";
import { exploreChange, fleetChange } from "./query_details";
import { DEFAULT_VIEW, type ViewState } from "./view_state";

const USED: ViewState = {
  ...DEFAULT_VIEW,
  page: "explore",
  selector: '{service_name="a"}',
  groupBy: "pod",
  views: ["tree"],
  transforms: [{ action: "focus", pattern: "main", isRegex: false }],
  zoomPath: ["main"],
  selectedPath: ["main"],
  sandwichFunction: "main",
  search: "ma",
  profileIds: ["1"],
  spanIds: ["2"],
  traceIds: ["3"],
};

test("other_service_keeps_nothing_of_the_query_before", () => {
  const selector = '{service_name="b"}';
  const expected = { ...DEFAULT_VIEW, page: "explore", selector, views: ["tree"] };
  expect({ ...USED, ...exploreChange(selector) }).toEqual(expected);
});

test("fleet_keeps_only_its_own_label", () => {
  expect({ ...USED, ...fleetChange(USED) }).toMatchObject({ page: "fleet", groupBy: "", transforms: [] });
  const fleet = { ...USED, page: "fleet" } as const;
  expect({ ...fleet, ...fleetChange(fleet) }).toEqual(fleet);
});
