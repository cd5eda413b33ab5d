// Tests of texts in the header.
import { beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { formatTime } from "../../theme/format";
import { parseUntil } from "../../url/time";

beforeAll(() => {
  vi.stubGlobal("location", { pathname: "/ui/", search: "", hostname: "localhost" });
  vi.stubGlobal("document", { baseURI: "http://localhost/ui/", addEventListener: () => {} });
  vi.stubGlobal("history", { state: null });
  vi.stubGlobal("localStorage", { getItem: () => null, setItem: () => {} });
  vi.stubGlobal("fetch", () => new Promise(() => {}));
});

test("error position counts characters, not code units", async () => {
  const { splitAtCharacter } = await import("./underlined_input");
  expect(splitAtCharacter("{😀a=b}", 3)).toEqual(["{😀", "a", "=b}"]);
  expect(splitAtCharacter("{a", 3)).toEqual(["{a", " ", ""]);
  expect(splitAtCharacter("{a", 99)).toEqual(["{a", " ", ""]);
  expect(splitAtCharacter("", 0)).toEqual(["", " ", ""]);
});

test("ranges are described in words", async () => {
  const { describeRange } = await import("./time_picker");
  const inWords = (from: string, until: string) => describeRange({ from, until, timeZone: "utc" });
  expect(inWords("now-1h", "now")).toBe("Last 1 hour");
  expect(inWords("now-30d", "now")).toBe("Last 30 days");
  expect(inWords("now-2h", "now-1h")).toBe("now-2h – now-1h");
  const start = Date.UTC(2026, 2, 2, 10);
  expect(inWords(String(start), String(start + 60_000))).toBe("2026-03-02 10:00:00Z – 10:01:00Z");
});

test("profile types that share a name have their parts", async () => {
  const { labelTypes } = await import("./profile_type_select");
  expect(
    labelTypes(["memory:inuse_space:bytes:space:bytes", "memory:inuse_space:bytes:x:y", "a:b:count::"]),
  ).toEqual([
    "Memory in use (B) – memory:inuse_space:bytes:space:bytes",
    "Memory in use (B) – memory:inuse_space:bytes:x:y",
    "a: b (/s)",
  ]);
});

test("reversed and unreadable ranges are problems", async () => {
  const { rangeProblem } = await import("./time_actions");
  expect(rangeProblem("now-1h", "now", "utc")).toBeUndefined();
  expect(rangeProblem("now", "now-1h", "utc")).toContain("before");
  expect(rangeProblem("soon", "now", "utc")).toContain('"soon"');
  expect(rangeProblem("now-1h", "later", "utc")).toContain('"later"');
  expect(rangeProblem("1969-01-01", "1970-01-01", "utc")).toContain("1970");
});

test("range does not move before 1970, and keeps its length", async () => {
  const { shiftRange, zoomOutRange } = await import("./time_actions");
  const { navigate, view } = await import("../../url/store");
  const { decodeView, encodeView } = await import("../../url/view_codec");
  vi.stubGlobal("history", { state: null, pushState: () => {} });
  const range = () => [view.value.from, view.value.until];
  navigate({ from: "1970-01-01T00:30:00Z", until: "1970-01-01T01:30:00Z" });
  shiftRange(-1);
  shiftRange(-1);
  expect(range()).toEqual(["1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z"]);
  expect(decodeView(encodeView(view.value)).notices).toEqual([]);
  zoomOutRange();
  expect(range()).toEqual(["1970-01-01T00:00:00Z", "1970-01-01T02:00:00Z"]);
});

test("cost of a query is the sum of all components", async () => {
  const { costSentence } = await import("../query_panel");
  const scopes = [
    {
      profileCount: "1200",
      blockCount: "3",
      indexBytes: "1000",
      profileBytes: "2000000",
      symbolBytes: "500",
    },
    { profileCount: "300", blockCount: "1" },
  ];
  expect(costSentence({ queryScopes: scopes })).toBe("It reads 1.50 k profiles in 4 blocks, 2.00 MB.");
});

test("palette matches all words", async () => {
  const { filterItems, pageItems } = await import("./palette_items");
  expect(filterItems(pageItems(), "diag query").map(({ title }) => title)).toEqual(["Query diagnostics"]);
  expect(filterItems(pageItems(), "").length).toBe(pageItems().length);
});

test("palette finds functions without a name by their placeholder", async () => {
  const { paletteFilter } = await import("./palette_items");
  expect(paletteFilter("main.run")).toEqual({ substring: "main.run" });
  expect(paletteFilter("No name")).toEqual({ regex: "^$|No name" });
  expect(paletteFilter("(no")).toEqual({ regex: "^$|\\(no" });
});

test("typing a shown time gives that time in both zones", () => {
  vi.stubEnv("TZ", "Europe/Berlin");
  onTestFinished(() => void vi.unstubAllEnvs());
  for (const ms of [0, Date.UTC(2026, 2, 29, 0, 59, 59), Date.UTC(2026, 2, 29, 1), Date.UTC(2026, 6, 1)]) {
    expect(parseUntil(formatTime(ms, "local"), Date.now(), "local")).toBe(ms);
    expect(parseUntil(formatTime(ms, "utc"), Date.now(), "utc")).toBe(ms);
  }
});
