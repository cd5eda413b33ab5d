// Rows of the table of functions, and the request for them.

import type { FunctionOrder, FunctionRow, FunctionsRequest } from "../api/types";
import { parseSearch } from "../graph/search";
import { queryOf } from "../url/query_of";
import type { ViewState } from "../url/view_state";

/** Rows of one call, the maximum of the API. */
export const FUNCTIONS_PER_PAGE = 10_000;
export interface TableFunction {
  readonly name: string;
  readonly self: bigint;
  readonly total: bigint;
  readonly file: string;
  readonly binary: string;
  /** Sum of the self values of all rows of its page up to this one. */
  readonly sumInPage: bigint;
}

/** Key of a column, and the order that the server sorts by. */
const ORDERS: ReadonlyMap<string, FunctionOrder> = new Map(
  Object.entries<FunctionOrder>({
    self: "FUNCTION_ORDER_SELF",
    total: "FUNCTION_ORDER_TOTAL",
    name: "FUNCTION_ORDER_NAME",
    file: "FUNCTION_ORDER_FILE",
    binary: "FUNCTION_ORDER_BINARY",
  }),
);

/** Returns whether a column begins with its first text instead of its largest value. */
export function isTextColumn(column: string): boolean {
  return column === "name" || column === "file" || column === "binary";
}

export type FunctionPages = ReadonlyMap<number, readonly TableFunction[]>;

/** Returns the request for the first page, or undefined while the view has no profile type. */
export function functionsRequest(state: ViewState): FunctionsRequest | undefined {
  const query = queryOf(state);
  if (query === undefined) return undefined;
  const pattern = parseSearch(state.search);
  const filter =
    pattern.kind === "text"
      ? { substring: pattern.text }
      : pattern.kind === "regex" || pattern.kind === "invalid"
        ? { regex: pattern.source }
        : undefined;
  return {
    query,
    order: ORDERS.get(state.tableSort) ?? "FUNCTION_ORDER_SELF",
    ...(state.tableReversed ? { reverse: true } : {}),
    ...(filter === undefined ? {} : { filter }),
    page: { offset: 0, limit: FUNCTIONS_PER_PAGE },
  };
}

/** Returns rows with the sums of their self values. */
export function tableRows(rows: readonly FunctionRow[]): TableFunction[] {
  let sumInPage = 0n;
  return rows.map(({ name = "", self = "0", total = "0", file = "", binary = "" }) => {
    sumInPage += BigInt(self);
    return { name, self: BigInt(self), total: BigInt(total), file, binary, sumInPage };
  });
}

/** Returns a row, or undefined while its page is loading. */
export function rowOfTable(pages: FunctionPages, index: number): TableFunction | undefined {
  return pages.get(Math.floor(index / FUNCTIONS_PER_PAGE))?.[index % FUNCTIONS_PER_PAGE];
}

/** Returns the sum of the self values of all rows up to this one, or undefined while an earlier page is missing. */
export function sumUpTo(pages: FunctionPages, index: number): bigint | undefined {
  let sum = rowOfTable(pages, index)?.sumInPage;
  for (let page = Math.floor(index / FUNCTIONS_PER_PAGE) - 1; page >= 0 && sum !== undefined; page--) {
    const last = pages.get(page)?.at(-1);
    sum = last === undefined ? undefined : sum + last.sumInPage;
  }
  return sum;
}

/** Returns the index of the first loaded row with a name. */
export function indexOfName(pages: FunctionPages, name: string): number | undefined {
  for (const [page, rows] of pages) {
    const place = rows.findIndex((row) => row.name === name);
    if (place >= 0) return page * FUNCTIONS_PER_PAGE + place;
  }
  return undefined;
}
