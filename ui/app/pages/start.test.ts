// Tests of the polls for the first profile.
import { afterEach, beforeEach, expect, test, vi } from "vitest";

const STATS = "GetProfileStats";
let methods: string[];
let respond: (method: string) => Response;

beforeEach(() => {
  vi.resetModules();
  vi.useFakeTimers();
  methods = [];
  vi.stubGlobal("location", { pathname: "/ui/", search: "", hostname: "localhost" });
  vi.stubGlobal("document", {
    ...{ baseURI: "http://localhost/ui/", hidden: false },
    ...{ addEventListener: () => {}, removeEventListener: () => {} },
  });
  vi.stubGlobal("history", { state: null });
  vi.stubGlobal("localStorage", { getItem: () => null, setItem: () => {} });
  vi.stubGlobal("fetch", async (address: unknown) => {
    const method = /\w+$/.exec(String(address))?.[0] ?? "";
    methods.push(method);
    return respond(method);
  });
});
afterEach(() => vi.useRealTimers());

const json = (message: unknown) => new Response(JSON.stringify(message));

async function startPolls() {
  const { startDataPolls } = await import("./start");
  const { isStoreEmpty, profileStats } = await import("../components/stored_data");
  startDataPolls();
  await vi.advanceTimersByTimeAsync(0);
  return { isStoreEmpty, profileStats };
}

/** Returns the number of polls within a time. */
async function countPolls(ms: number): Promise<number> {
  methods = [];
  await vi.advanceTimersByTimeAsync(ms);
  return methods.filter((method) => method === STATS).length;
}

test("empty store is polled more often than one whose profiles are undated", async () => {
  let profileTypes: readonly unknown[] = [];
  respond = (method) => json(method === STATS ? {} : { profileTypes });
  const { isStoreEmpty } = await startPolls();
  expect(isStoreEmpty.value).toBe(true);
  expect(await countPolls(7_500)).toBe(10);
  profileTypes = [{ ID: "a:b:c:d:e" }];
  await vi.advanceTimersByTimeAsync(750);
  expect(isStoreEmpty.value).toBe(false);
  expect(await countPolls(10_000)).toBe(2);
});

test("failed search for undated profiles keeps the last result", async () => {
  respond = (method) => json(method === STATS ? {} : { profileTypes: [{ ID: "a:b:c:d:e" }] });
  const { isStoreEmpty, profileStats } = await startPolls();
  expect(isStoreEmpty.value).toBe(false);
  respond = (method) =>
    method === STATS ? json({}) : new Response('{"code":"internal","message":"broken"}', { status: 500 });
  expect(await countPolls(10_000)).toBe(2);
  expect(profileStats.state.value).toMatchObject({ kind: "done", value: { hasOnlyUndated: true } });
});
