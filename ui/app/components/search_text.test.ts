// Tests of filters and results of the search.

import { describe, expect, it } from "vitest";
import { describeHighlight, describeMatches, filterOfSearch } from "./search_text";

describe("filterOfSearch", () => {
  it.each([
    ["", undefined],
    ["net/http", { substring: "net/http" }],
    ["/net/", { regex: "net" }],
    ["//", { substring: "//" }],
    ["/", { substring: "/" }],
  ])("%j_becomes_%j", (search, filter) => {
    expect(filterOfSearch(search)).toEqual(filter);
  });
});

describe("describeMatches", () => {
  it("number_and_share_are_exact", () => {
    expect(describeMatches({ count: "37", matchedTotal: "124", total: "1000" })).toBe("37 functions, 12.4 %");
    expect(describeMatches({ count: "1", matchedTotal: "9007199254740993", total: "9007199254740993" })).toBe(
      "1 function, 100 %",
    );
    expect(describeMatches({ total: "1000" })).toBe("no function");
  });
});

it("highlight of frames that are no functions is named", () => {
  expect(describeHighlight({ views: ["flame"], frames: "file" })).toBe("the graph highlights files");
  expect(describeHighlight({ views: ["table", "tree"], frames: "binary" })).toBe(
    "the graph highlights binaries",
  );
  expect(describeHighlight({ views: ["table"], frames: "file" })).toBe("");
  expect(describeHighlight({ views: ["flame"], frames: "function" })).toBe("");
  expect(describeHighlight({ views: ["flame"], frames: "label:pod" })).toBe("");
});
