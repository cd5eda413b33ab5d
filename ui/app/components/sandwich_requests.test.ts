// Tests of the requests of a sandwich.

import { expect, test } from "vitest";
import { DEFAULT_VIEW, type TransformState, type ViewState } from "../url/view_state";
import { excessTransformsNotice, sandwichRequests } from "./sandwich_requests";

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

test("empty name is the name of a function", () => {
  const requests = sandwichRequests({ ...viewWith(0), sandwichFunction: "" });
  expect(requests?.sandwich.function).toBe("");
  expect(requests?.callers).toMatchObject({ path: [""], invert: true });
  expect(requests?.callees.query?.transforms).toEqual([{ showFrom: { name: "" } }]);
  expect(sandwichRequests({ ...viewWith(0), sandwichFunction: undefined })).toBeUndefined();
});

test("view with too many transforms has a notice in place of requests", () => {
  expect(sandwichRequests(viewWith(30))?.callers.query?.transforms).toHaveLength(32);
  expect(excessTransformsNotice(viewWith(30))).toBeUndefined();
  expect(sandwichRequests(viewWith(31))).toBeUndefined();
  expect(excessTransformsNotice(viewWith(31))).toBe(
    "A sandwich adds 2 transforms and the limit is 32, but this view has 31. Remove one.",
  );
  expect(excessTransformsNotice(viewWith(33))).toContain("Remove 3.");
});
