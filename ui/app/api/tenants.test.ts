// Tests of the list of tenants.
import { afterEach, expect, test, vi } from "vitest";
import { setToken } from "./credentials";
import { listedTenants, loadTenants, NO_TENANTS, readTenants } from "./tenants";

afterEach(() => vi.unstubAllGlobals());

function stubResponse(response: () => Promise<Response>): void {
  vi.stubGlobal("document", { baseURI: "http://host/prefix/ui/" });
  vi.stubGlobal("fetch", vi.fn(response));
}

test("tenants are listed, a server without tenants has none", () => {
  expect(readTenants({ tenants: ["a", "b"], truncated: false })).toEqual({
    names: ["a", "b"],
    isTruncated: false,
  });
  expect(readTenants({ tenants: ["anonymous", "b"] }).names).toEqual(["anonymous", "b"]);
  expect(readTenants({ tenants: ["anonymous"] })).toEqual(NO_TENANTS);
  for (const message of [null, [], "a", { tenants: "a" }, { tenants: [1, ""] }])
    expect(readTenants(message)).toEqual(NO_TENANTS);
});

test("a truncated list is marked", () => {
  expect(readTenants({ tenants: ["a", "b"], truncated: true }).isTruncated).toBe(true);
  expect(readTenants({ tenants: ["a", "b"], truncated: "no" }).isTruncated).toBe(false);
});

test("list of all tenants comes from the server, below its prefix", async () => {
  stubResponse(async () => Response.json({ tenants: ["a", "b"] }));
  await loadTenants(new AbortController().signal);
  expect(listedTenants.value.names).toEqual(["a", "b"]);
  expect(fetch).toHaveBeenCalledWith(
    "http://host/prefix/athanor/tenants",
    expect.objectContaining({ headers: {} }),
  );
});

test("request for the list has the token of the tab", async () => {
  stubResponse(async () => Response.json({ tenants: ["a", "b"] }));
  setToken("secret");
  await loadTenants(new AbortController().signal);
  setToken("");
  expect(fetch).toHaveBeenCalledWith(
    expect.anything(),
    expect.objectContaining({ headers: { Authorization: "Bearer secret" } }),
  );
});

test("refused and broken lists are empty", async () => {
  for (const response of [
    async () => new Response("", { status: 401 }),
    async () => new Response("<html>"),
    async () => Promise.reject(new TypeError("network")),
  ]) {
    listedTenants.value = { names: ["old"], isTruncated: true };
    stubResponse(response);
    await loadTenants(new AbortController().signal);
    expect(listedTenants.value).toEqual(NO_TENANTS);
  }
});
