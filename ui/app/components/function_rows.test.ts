// Tests of the rows of the table of functions.

import { expect, test } from "vitest";
import { DEFAULT_VIEW, TABLE_SORT_COLUMNS } from "../url/view_state";
import {
  FUNCTIONS_PER_PAGE,
  functionsRequest,
  indexOfName,
  rowOfTable,
  sumUpTo,
  tableRows,
} from "./function_rows";

const state = { ...DEFAULT_VIEW, profileType: "a:b:c::", from: "1000000000000", until: "1000003600000" };

test("request_has_order_direction_and_filter", () => {
  const request = functionsRequest({ ...state, tableSort: "file", tableReversed: true, search: "/^main/" });
  expect(request).toMatchObject({
    order: "FUNCTION_ORDER_FILE",
    reverse: true,
    filter: { regex: "^main" },
    page: { offset: 0, limit: 10_000 },
  });
  expect(functionsRequest({ ...state, search: "(x" })?.filter).toEqual({ substring: "(x" });
  // The server names the position of the error.
  expect(functionsRequest({ ...state, search: "/(/" })?.filter).toEqual({ regex: "(" });
  expect(functionsRequest(DEFAULT_VIEW)).toBeUndefined();
});

test("each_sort_column_has_an_order_of_its_own", () => {
  const orders = TABLE_SORT_COLUMNS.map((tableSort) => functionsRequest({ ...state, tableSort })?.order);
  expect(new Set(orders).size).toBe(TABLE_SORT_COLUMNS.length);
});

test("sums_are_exact_and_wait_for_earlier_pages", () => {
  const first = tableRows([
    { name: "a", self: "9007199254740993", total: "1" },
    { name: "b", self: "1" },
  ]);
  const later = tableRows([{ name: "c", self: "5" }]);
  const pages = new Map([[0, first]]);
  expect(sumUpTo(pages, 0)).toBe(9_007_199_254_740_993n);
  expect(sumUpTo(pages, 1)).toBe(9_007_199_254_740_994n);
  const gap = new Map([[1, later]]);
  expect(sumUpTo(gap, FUNCTIONS_PER_PAGE)).toBeUndefined();
  const both = new Map([...pages, ...gap]);
  expect(sumUpTo(both, FUNCTIONS_PER_PAGE)).toBe(9_007_199_254_740_999n);
  expect(rowOfTable(both, FUNCTIONS_PER_PAGE)?.name).toBe("c");
  expect(indexOfName(both, "c")).toBe(FUNCTIONS_PER_PAGE);
  expect(indexOfName(both, "d")).toBeUndefined();
});
