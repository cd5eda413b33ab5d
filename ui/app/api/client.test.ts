// Tests of calls against a fake server.
import { afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";

type FakeFetch = (url: string, init: RequestInit) => Promise<Response>;

let client: typeof import("./client");
let credentials: typeof import("./credentials");
let serverState: typeof import("./server_state");
const fetchFake = vi.fn<FakeFetch>();
const STATS = "querier.v1.QuerierService/GetProfileStats";

beforeAll(async () => {
  vi.stubGlobal("location", { pathname: "/p/ui/", search: "?v=1&t=team-a", hostname: "host" });
  vi.stubGlobal("document", { baseURI: "http://host/p/ui/?v=1" });
  vi.stubGlobal("history", { state: null });
  vi.stubGlobal("fetch", fetchFake);
  client = await import("./client");
  credentials = await import("./credentials");
  serverState = await import("./server_state");
});

beforeEach(() => {
  vi.useFakeTimers();
  fetchFake.mockReset();
});
afterEach(() => vi.useRealTimers());

function respond(body: BodyInit, init?: ResponseInit): void {
  fetchFake.mockImplementation(async () => new Response(body, init));
}

test("call goes to the root of the server with tenant and token", async () => {
  respond(JSON.stringify({ dataIngested: true, warnings: ["a block is missing"] }), {
    headers: { "Athanor-Resolution": "raw" },
  });
  credentials.setToken(" secret ");
  const reply = await client.call(STATS, {});
  const [url, init] = fetchFake.mock.calls[0] ?? [];
  expect(url).toBe(`http://host/p/${STATS}`);
  expect(init?.headers).toMatchObject({
    "X-Scope-OrgID": "team-a",
    Authorization: "Bearer secret",
  });
  expect(reply).toMatchObject({
    message: { dataIngested: true },
    warnings: ["a block is missing"],
    resolution: "raw",
  });
  credentials.setToken("");
});

test("only browsers on the machine of the server go without compression", async () => {
  const headers = async (baseURI: string) => {
    vi.stubGlobal("document", { baseURI });
    respond("{}");
    await client.call(STATS, {});
    return new Headers(fetchFake.mock.lastCall?.[1]?.headers);
  };
  expect((await headers("http://127.0.0.1:4040/ui/")).get("Athanor-UI")).toBe("1");
  expect((await headers("http://[::1]:4040/ui/")).has("Athanor-UI")).toBe(true);
  expect((await headers("http://127.0.0.1.example.com/ui/")).has("Athanor-UI")).toBe(false);
  expect((await headers("http://host/p/ui/?v=1")).has("Athanor-UI")).toBe(false);
});

test("rejected credentials open the dialog", async () => {
  respond(JSON.stringify({ code: "unauthenticated", message: "no org id" }), { status: 401 });
  await expect(client.call(STATS, {})).rejects.toMatchObject({ status: 401, message: "no org id" });
  expect(credentials.isTokenMissing.value).toBe(true);
  respond("{}");
  await client.call(STATS, {});
  expect(credentials.isTokenMissing.value).toBe(false);
});

test("tenant that no header may contain is an error, not a lost connection", async () => {
  await expect(client.call(STATS, {}, { tenant: "a\n😀" })).rejects.toMatchObject({ status: 400 });
  expect(fetchFake).not.toHaveBeenCalled();
  expect(serverState.isServerUp.value).toBe(true);
});

test("lost connection is reported until the server is ready", async () => {
  fetchFake.mockRejectedValue(new TypeError("failed to fetch"));
  await expect(client.call(STATS, {})).rejects.toMatchObject({ code: "unreachable" });
  expect(serverState.isServerUp.value).toBe(false);
  const before = serverState.recoveries.value;
  await vi.advanceTimersByTimeAsync(5_000);
  expect(serverState.isServerUp.value).toBe(false);
  respond("ready");
  await vi.advanceTimersByTimeAsync(6_000);
  expect(serverState.isServerUp.value).toBe(true);
  expect(serverState.recoveries.value).toBe(before + 1);
});

test("damaged response is an error", async () => {
  respond("{");
  await expect(client.call(STATS, {})).rejects.toMatchObject({ code: "invalid_response" });
});

test("graph is called with protobuf", async () => {
  respond(new Uint8Array([8, 1]));
  const bytes = await client.fetchGraph({ query: { profileType: "a" } });
  expect(new Uint8Array(bytes)).toEqual(new Uint8Array([8, 1]));
  const [url, init] = fetchFake.mock.calls[0] ?? [];
  expect(url).toBe("http://host/p/athanor.v1.ExploreService/Graph");
  expect(init?.headers).toMatchObject({ "Content-Type": "application/proto" });
  expect(init?.body).toEqual(new Uint8Array([0x0a, 3, 0x0a, 1, 0x61]));
});
