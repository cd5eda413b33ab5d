// Tests of the list of tenants.
import { afterEach, expect, test, vi } from "vitest";
import { listedTenants, loadTenants, readTenants } from "./tenants";

afterEach(() => vi.unstubAllGlobals());

function stubResponse(response: () => Promise<Response>): void {
  vi.stubGlobal("document", { baseURI: "http://host/prefix/ui/" });
  vi.stubGlobal("fetch", vi.fn(response));
}

test("tenants are listed, a server without tenants has none", () => {
  expect(readTenants({ tenants: ["a", "b"], truncated: false })).toEqual(["a", "b"]);
  expect(readTenants({ tenants: ["anonymous", "b"] })).toEqual(["anonymous", "b"]);
  expect(readTenants({ tenants: ["anonymous"] })).toEqual([]);
  for (const message of [null, [], "a", { tenants: "a" }, { tenants: [1, ""] }])
    expect(readTenants(message)).toEqual([]);
});

test("list comes from the server, below its prefix", async () => {
  stubResponse(async () => Response.json({ tenants: ["a", "b"] }));
  await loadTenants("a", new AbortController().signal);
  expect(listedTenants.value).toEqual(["a", "b"]);
  expect(fetch).toHaveBeenCalledWith(
    "http://host/prefix/athanor/tenants",
    expect.objectContaining({ headers: { "X-Scope-OrgID": "a" } }),
  );
});

test("refused and broken lists are empty", async () => {
  for (const response of [
    async () => new Response("", { status: 401 }),
    async () => new Response("<html>"),
    async () => Promise.reject(new TypeError("network")),
  ]) {
    listedTenants.value = ["old"];
    stubResponse(response);
    await loadTenants("", new AbortController().signal);
    expect(listedTenants.value).toEqual([]);
  }
});
