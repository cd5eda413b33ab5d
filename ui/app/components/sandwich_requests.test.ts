// Tests of the requests of a sandwich.

import { expect, test } from "vitest";
import { DEFAULT_VIEW, type TransformState, type ViewState } from "../url/view_state";
import { sandwichRequests } from "./sandwich_requests";

function viewWith(transformCount: number): ViewState {
  const transform: TransformState = { action: "ignore", pattern: "idle", isRegex: false };
  return {
    ...DEFAULT_VIEW,
    profileType: "a:b:c:d:e",
    sandwichFunction: "f",
    transforms: Array.from({ length: transformCount }, () => transform),
  };
}

test("callers are inverted from stacks with the function only", () => {
  const requests = sandwichRequests(viewWith(1));
  const ignore = { ignore: { name: "idle" } };
  const name = "f";
  expect(requests?.callers).toMatchObject({ path: [name], invert: true });
  expect(requests?.callers.query?.transforms).toEqual([
    ignore,
    { focus: { name } },
    { collapseBelow: { name } },
  ]);
  expect(requests?.callees.query?.transforms).toEqual([ignore, { showFrom: { name } }]);
  expect(requests?.sandwich.query?.transforms).toEqual([ignore]);
});
