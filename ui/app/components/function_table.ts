// Table of functions, loaded page by page from calls that truncate nothing.

import { type Signal, signal } from "@preact/signals";
import { call } from "../api/client";
import type { FunctionsRequest, FunctionsResponse } from "../api/types";
import { FUNCTIONS_PER_PAGE, type FunctionPages, type TableFunction, tableRows } from "./function_rows";

/** Maximum number of rows that a copy loads. */
export const MAX_COPIED_ROWS = 100_000;

export interface FunctionTable {
  readonly request: FunctionsRequest;
  /** Response of the first page. */
  readonly head: FunctionsResponse;
  readonly warnings: readonly string[];
  readonly total: bigint;
  readonly unit: string;
  readonly count: number;
  readonly pages: Signal<FunctionPages>;
  /** Error of a later page. */
  readonly failure: Signal<string | undefined>;
  /** Loads a page, and those before it, which sums need. */
  readonly load: (page: number) => Promise<void>;
}

export interface TenantRequest {
  readonly tenant: string;
  readonly request: FunctionsRequest;
}

/** Loads the first page. Later ones are loaded when they come into view. */
export async function loadFunctionTable(
  { tenant, request }: TenantRequest,
  abort: AbortSignal,
): Promise<FunctionTable> {
  const method = "athanor.v1.ExploreService/Functions";
  const first = await call(method, request, { signal: abort, tenant });
  const head = first.message;
  const count = Number(head.count ?? 0);
  const pages = signal<FunctionPages>(new Map([[0, tableRows(head.rows ?? [])]]));
  const failure = signal<string | undefined>(undefined);
  const running = new Map<number, Promise<void>>();
  const loadPage = async (page: number) => {
    const offset = page * FUNCTIONS_PER_PAGE;
    const reply = await call(
      method,
      { ...request, page: { offset, limit: FUNCTIONS_PER_PAGE } },
      { signal: abort, tenant },
    );
    pages.value = new Map(pages.peek()).set(page, tableRows(reply.message.rows ?? []));
  };
  const loadOnce = (page: number): Promise<void> => {
    if (pages.peek().has(page)) return Promise.resolve();
    let promise = running.get(page);
    if (promise === undefined) {
      promise = loadPage(page).finally(() => running.delete(page));
      running.set(page, promise);
    }
    return promise;
  };
  const load = async (page: number) => {
    try {
      await loadOnce(page);
      for (let before = 0; before < page; before++) await loadOnce(before);
      failure.value = undefined;
    } catch (error) {
      if (!abort.aborted) failure.value = error instanceof Error ? error.message : String(error);
    }
  };
  return {
    request,
    head,
    warnings: first.warnings,
    total: BigInt(head.total ?? 0),
    unit: head.unit ?? "",
    count,
    pages,
    failure,
    load,
  };
}

/** Loads the rows of a copy, at most `MAX_COPIED_ROWS`. Throws if a page fails: sums need all of them. */
export async function rowsToCopy(table: FunctionTable): Promise<TableFunction[]> {
  const rows = Math.min(table.count, MAX_COPIED_ROWS);
  const pageCount = Math.ceil(rows / FUNCTIONS_PER_PAGE);
  if (pageCount > 1) await table.load(pageCount - 1);
  const pages = table.pages.peek();
  return Array.from({ length: pageCount }, (_, page) => {
    const rowsOfPage = pages.get(page);
    if (rowsOfPage === undefined) throw new Error(table.failure.peek() ?? "the query has changed");
    return rowsOfPage;
  })
    .flat()
    .slice(0, rows);
}
