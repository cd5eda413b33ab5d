// Tests of calls that belong to a displayed graph.

import { beforeAll, beforeEach, expect, test, vi } from "vitest";
import { graphOfTree } from "../../graph/testing/stacks";

const posted: { tenant: string | undefined; body: string }[] = [];

beforeAll(() => {
  vi.stubGlobal("location", { pathname: "/ui/", search: "", hostname: "localhost" });
  vi.stubGlobal("document", { baseURI: "http://localhost/ui/", addEventListener: () => {} });
  vi.stubGlobal("history", { state: null });
  vi.stubGlobal("fetch", (_url: string, { headers, body }: { headers: HeadersInit; body: Uint8Array }) => {
    posted.push({
      tenant: new Headers(headers).get("X-Scope-OrgID") ?? undefined,
      body: new TextDecoder().decode(body),
    });
    return Promise.reject(new DOMException("", "AbortError"));
  });
});

beforeEach(() => {
  posted.length = 0;
});

const origin = (tenant: string) => ({ tenant, request: { query: { selector: '{pod="of-the-graph"}' } } });

test("hidden callees come from the request of the displayed graph", async () => {
  const { subtreeLoaderOf } = await import("./graph_loader");
  const { setGraphOrigin } = await import("./graph_origin");
  const graph = graphOfTree({ name: "", self: 1n, callees: [], truncated: 0n });
  expect(subtreeLoaderOf(graph)).toBeNull();
  setGraphOrigin(graph, origin("a"));
  await subtreeLoaderOf(graph)?.(["main"], 1, new AbortController().signal).catch(() => {});
  expect(posted).toHaveLength(1);
  expect(posted[0]?.tenant).toBe("a");
  expect(posted[0]?.body).toContain("of-the-graph");
  expect(posted[0]?.body).toContain("main");
});

test("totals of functions are cached for one tenant and one refresh", async () => {
  const { totalKey } = await import("./function_total");
  const { refresh } = await import("../../url/clock");
  const keys = [totalKey(origin("a")), totalKey(origin("b"))];
  refresh();
  keys.push(totalKey(origin("a")));
  expect(new Set(keys).size).toBe(3);
});
