// Tests of the view and the browser's history.
import { beforeEach, expect, test, vi } from "vitest";

interface FakeEntry {
  state: unknown;
  url: string;
}

/** History of a browser, as far as the store uses it. */
class FakeBrowser {
  entries: FakeEntry[] = [{ state: null, url: "/ui/" }];
  index = 0;
  onPopState: (() => void) | undefined;

  get entry(): FakeEntry {
    return this.entries[this.index] as FakeEntry;
  }

  install(): void {
    const browser = this;
    vi.stubGlobal("location", {
      get pathname() {
        return new URL(browser.entry.url, "http://host/ui/").pathname;
      },
      get search() {
        return new URL(browser.entry.url, "http://host/ui/").search;
      },
    });
    vi.stubGlobal("history", {
      get state() {
        return browser.entry.state;
      },
      pushState: (state: unknown, _title: string, url: string) => {
        browser.entries = [...browser.entries.slice(0, browser.index + 1), { state, url }];
        browser.index++;
      },
      replaceState: (state: unknown, _title: string, url: string) => {
        browser.entries[browser.index] = { state, url };
      },
      back: () => browser.go(-1),
    });
    vi.stubGlobal("addEventListener", (name: string, listener: () => void) => {
      if (name === "popstate") browser.onPopState = listener;
    });
  }

  go(step: number): void {
    this.index += step;
    this.onPopState?.();
  }
}

let browser: FakeBrowser;
let store: typeof import("./store");

beforeEach(async () => {
  vi.resetModules();
  vi.useFakeTimers();
  browser = new FakeBrowser();
  browser.install();
  store = await import("./store");
  store.startHistory();
});

test("back undoes one step", () => {
  store.navigate({ page: "explore" });
  store.navigate({ search: "a" });
  expect(browser.entry.url).toBe("./?v=1&p=explore&s=a");
  store.goBack();
  expect(store.view.value).toMatchObject({ page: "explore", search: "" });
  store.goBack();
  expect(store.view.value.page).toBe("fleet");
});

test("typing adds one entry for each field", () => {
  for (const search of ["a", "ab", "abc"]) store.navigate({ search }, "typing");
  expect(store.view.value.search).toBe("abc");
  expect(browser.entries).toHaveLength(2);
  vi.runAllTimers();
  expect(browser.entry.url).toBe("./?v=1&s=abc");
  for (const fleetFilter of ["x", "xy"]) store.navigate({ fleetFilter }, "typing");
  expect(browser.entries).toHaveLength(3);
  browser.go(-1);
  expect(store.view.value).toMatchObject({ search: "abc", fleetFilter: "" });
  browser.go(-1);
  expect(store.view.value.search).toBe("");
});

test("typed text is in the address before the next step", () => {
  store.navigate({ search: "a" }, "typing");
  store.navigate({ search: "ab" }, "typing");
  store.navigate({ page: "explore" });
  browser.go(-1);
  expect(store.view.value).toMatchObject({ page: "fleet", search: "ab" });
});

test("step that changes nothing adds no entry", () => {
  store.navigate({ page: "fleet" });
  expect(browser.entries).toHaveLength(1);
});

test("values that the page fills in add no entry", () => {
  store.replaceView({ profileType: "a:b:c:d:e" });
  expect(browser.entries).toHaveLength(1);
  expect(browser.entry.url).toBe("./?v=1&y=a:b:c:d:e");
});

test("first view without history goes back to the fleet", () => {
  browser.entries = [{ state: null, url: "/ui/?v=1&p=explore" }];
  browser.index = 0;
  browser.onPopState?.();
  expect(store.view.value.page).toBe("explore");
  store.goBack();
  expect(store.view.value.page).toBe("fleet");
});

test("link of a change keeps the rest of the view", () => {
  store.navigate({ search: "a" });
  expect(store.hrefOf({ page: "explore" })).toBe("./?v=1&p=explore&s=a");
});

test("change removes the function of the sandwich, whose name may be empty", () => {
  store.navigate({ sandwichFunction: "" });
  expect(browser.entry.url).toBe("./?v=1&fn=");
  store.navigate({ sandwichFunction: undefined });
  expect(browser.entry.url).toBe("./?v=1");
  expect(store.view.value.sandwichFunction).toBeUndefined();
  browser.go(-1);
  expect(store.view.value.sandwichFunction).toBe("");
});

test("view has copies of the texts of a change", () => {
  const transforms = [{ action: "focus", pattern: "main", isRegex: false } as const];
  store.navigate({ transforms, sandwichFunction: "main" });
  expect(store.view.value).toMatchObject({ transforms, sandwichFunction: "main" });
  expect(store.view.value.transforms).not.toBe(transforms);
});

test("step back to another query sees the current time", async () => {
  const { now } = await import("./clock");
  const first = now.value;
  store.navigate({ page: "explore" });
  store.navigate({ search: "a" });
  vi.advanceTimersByTime(2_400_000);
  store.goBack();
  expect(now.value, "the query is the same").toBe(first);
  store.goBack();
  expect(store.view.value.page).toBe("fleet");
  expect(now.value).toBe(first + 2_400_000);
});

test.each([
  { from: "now-2h" },
  { until: "now-5m" },
  { selector: '{a="b"}' },
  { profileType: "a:b:c:d:e" },
  { profileIds: ["0123456789abcdef0123456789abcdef"] },
  { transforms: [{ action: "focus", pattern: "main", isRegex: false }] as const },
  { zoomPath: ["main"] },
])("change to %j ends the zoomed range", (change) => {
  store.navigate({ zoomRange: "0.25-0.5" });
  store.navigate({ search: "a", from: "now-1h" });
  expect(store.view.value.zoomRange).toBe("0.25-0.5");
  store.navigate(change);
  expect(store.view.value.zoomRange).toBe("");
  store.goBack();
  expect(store.view.value.zoomRange).toBe("0.25-0.5");
});
