// Tests of totals of functions.

import { beforeAll, expect, test, vi } from "vitest";

beforeAll(() => {
  vi.stubGlobal("location", { pathname: "/ui/", search: "", hostname: "localhost" });
  vi.stubGlobal("document", { baseURI: "http://localhost/ui/", addEventListener: () => {} });
  vi.stubGlobal("history", { state: null });
});

const origin = { tenant: "a", request: { query: { selector: "{}" } } };

test("function_with_empty_name_is_asked_for_by_regex", async () => {
  const { totalRequestOf } = await import("./function_total");
  expect(totalRequestOf("", origin)?.request.filter).toEqual({ regex: "^$" });
  expect(totalRequestOf("main", origin)?.request.filter).toEqual({ regex: "^main$" });
  expect(totalRequestOf(undefined, origin)).toBeUndefined();
  expect(totalRequestOf("main", undefined)).toBeUndefined();
});

test("failed_call_returns_text_of_its_error", async () => {
  const { fetchTotal } = await import("./function_total");
  const body = JSON.stringify({ code: "resource_exhausted", message: "too many queries" });
  vi.stubGlobal("fetch", async () => new Response(body, { status: 429 }));
  const total = await fetchTotal({ tenant: "a", request: {} }, new AbortController().signal);
  expect(total).toEqual({ kind: "failed", text: "too many queries" });
});
