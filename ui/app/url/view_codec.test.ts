// Tests of views as links.
import { expect, test } from "vitest";
import { SeededRandom } from "./testing/random";
import { decodeView, encodeView } from "./view_codec";
import {
  DEFAULT_VIEW,
  FLEET_SORT_COLUMNS,
  TABLE_SORT_COLUMNS,
  type TransformState,
  type ViewState,
} from "./view_state";

function randomTransform(random: SeededRandom): TransformState {
  const actions = [
    "focus",
    "ignore",
    "hide",
    "show",
    "showFrom",
    "collapseBelow",
    "collapseRecursion",
  ] as const;
  const action = random.pick(actions);
  if (action === "collapseRecursion" && random.below(2) === 0)
    return { action, pattern: undefined, isRegex: false };
  return { action, pattern: random.hostileText(), isRegex: random.below(2) === 0 };
}

function randomView(random: SeededRandom): ViewState {
  const viewName = () => random.pick(["flame", "icicle", "table", "tree", "sandwich"] as const);
  const flag = () => random.below(2) === 0;
  const hexId = (digits: number) =>
    random
      .below(2 ** 31)
      .toString(16)
      .padStart(digits, "0");
  const uuid = () => hexId(32).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  const [from, until] = random.pick([
    ["now-1h", "now"],
    ["1h30m", " 2026-03-02 10:15:30+05:45"],
    ["yesterday", "now+1h"],
    ["now-1d/d", "today/w"],
    ["20260302-1h", "1772442000000"],
    ["0", "1970-01-02T00:00:00Z"],
  ] as const);
  return {
    page: random.pick(["start", "fleet", "explore"]),
    tenant: random.hostileText(),
    profileType: random.hostileText(),
    selector: random.hostileText(),
    from,
    until,
    timeZone: random.pick(["local", "utc"]),
    refreshSeconds: random.pick([0, 10, 30, 86_400]),
    groupBy: random.hostileText(),
    timelineMode: random.pick(["lines", "stacked"]),
    timelineValue: random.pick(["rate", "sum"]),
    views: flag() ? [viewName()] : [viewName(), viewName()],
    transforms: random.list(8, () => randomTransform(random)),
    frames: random.pick([
      "function",
      "line",
      "file",
      "package",
      "binary",
      `label:x${random.hostileText()}` as const,
    ]),
    inverted: flag(),
    colorBy: random.pick(["package", "binary", "share"]),
    zoomPath: random.list(30, () => random.hostileText()),
    zoomRange: random.pick(["", "0-1", "0.25-0.5", "3e-9-0.001"]),
    selectedPath: random.list(30, () => random.hostileText()),
    sandwichFunction: flag() ? random.hostileText() : undefined,
    search: random.hostileText(),
    tableSort: random.pick(TABLE_SORT_COLUMNS),
    tableReversed: flag(),
    fleetSort: random.pick(FLEET_SORT_COLUMNS),
    fleetReversed: flag(),
    fleetFilter: random.hostileText(),
    profileIds: random.list(5, uuid),
    spanIds: random.list(5, () => hexId(16)),
    traceIds: random.list(5, () => hexId(32)),
  };
}

test("random views survive as links", () => {
  const random = new SeededRandom(5);
  for (let count = 0; count < 300; count++) {
    const state = randomView(random);
    const search = encodeView(state);
    expect(decodeView(search)).toEqual({ state, notices: [] });
    // The link also survives a browser, which encodes further characters.
    expect(decodeView(new URL(`http://host/ui/${search}`).search).state).toEqual(state);
  }
});

test("default view has a short link", () => {
  expect(encodeView(DEFAULT_VIEW)).toBe("?v=1");
  expect(decodeView("")).toEqual({ state: DEFAULT_VIEW, notices: [] });
});

test("parameters have a fixed order and stay readable", () => {
  const state: ViewState = {
    ...DEFAULT_VIEW,
    search: "pay",
    page: "explore",
    selector: '{service_name="shop"}',
    zoomPath: ["main", "checkout"],
    transforms: [{ action: "focus", pattern: "pay/db", isRegex: false }],
  };
  expect(encodeView(state)).toBe(
    "?v=1&p=explore&q=%7Bservice_name=%22shop%22%7D&x=focus=pay/db&z=main;checkout&s=pay",
  );
});

test("empty name is a name in each parameter", () => {
  const state: ViewState = {
    ...DEFAULT_VIEW,
    transforms: [
      { action: "hide", pattern: "", isRegex: false },
      { action: "collapseRecursion", pattern: "", isRegex: false },
      { action: "collapseRecursion", pattern: undefined, isRegex: false },
    ],
    zoomPath: ["main", ""],
    selectedPath: [""],
    sandwichFunction: "",
  };
  const search = "?v=1&x=hide=&x=collapseRecursion=&x=collapseRecursion&z=main;&n=&fn=";
  expect(encodeView(state)).toBe(search);
  expect(decodeView(search)).toEqual({ state, notices: [] });
  expect(decodeView("?v=1&w=sandwich").state.sandwichFunction).toBeUndefined();
  expect(decodeView("?v=1&x=hide").notices).toHaveLength(1);
});

test("lone surrogate becomes a replacement character", () => {
  expect(decodeView(encodeView({ ...DEFAULT_VIEW, search: "a\ud800b" })).state.search).toBe("a\ufffdb");
});

test("unknown version and parameter give notices and the nearest view", () => {
  const { state, notices } = decodeView("?v=99&p=explore&color=red&s=pay");
  expect(state).toEqual({ ...DEFAULT_VIEW, page: "explore", search: "pay" });
  expect(notices).toHaveLength(2);
  expect(notices[0]).toContain("version 99");
  expect(notices[1]).toContain("color");
});

test("unusable values give notices and defaults", () => {
  const search =
    "?v=1&p=admin&r=-5&w=flame,pie&x=explode=a&x=hide=b&fr=planet&i=2&c=pink&z=~AAAA&id=x%27y&tz=mars";
  const { state, notices } = decodeView(search);
  expect(notices).toHaveLength(10);
  expect(state.views).toEqual(["flame"]);
  expect(state.transforms).toEqual([{ action: "hide", pattern: "b", isRegex: false }]);
  expect(state.zoomPath).toEqual([]);
  expect(state.page).toBe("fleet");
});

test("intervals below 10 s are refused", () => {
  expect(decodeView("?v=1&r=1").state.refreshSeconds).toBe(0);
  expect(decodeView("?v=1&r=9").notices).toHaveLength(1);
  expect(decodeView("?v=1&r=0").notices).toEqual([]);
  expect(decodeView("?v=1&r=10").state.refreshSeconds).toBe(10);
});

test("unusable times, orders and groupings are not in the view", () => {
  const { state, notices } = decodeView("?v=1&f=banana&u=&o=foo&fo=-foo&fr=label:");
  expect(state).toEqual(DEFAULT_VIEW);
  expect(notices).toHaveLength(5);
  expect(notices[0]).toContain("f has an unusable value: banana");
});

test("times of a reversed range are swapped with a notice", () => {
  for (const [search, from, until] of [
    ["f=now&u=now-1h", "now-1h", "now"],
    ["f=1772442000000&u=1772438400000", "1772438400000", "1772442000000"],
    ["f=2100-01-01&u=1h", "now-1h", "2100-01-01"],
  ] as const) {
    const { state, notices } = decodeView(`?v=1&${search}`);
    expect([state.from, state.until]).toEqual([from, until]);
    expect(notices).toHaveLength(1);
    expect(notices[0]).toContain("ends before it begins");
  }
  expect(decodeView("?v=1&f=1969-01-01&u=1970-01-01").notices[0]).toContain("parameter u");
});

test("rounded times of a reversed range keep its length", () => {
  const today = Math.floor(Date.now() / 86_400_000) * 86_400_000;
  const yesterday = String(today - 86_400_000);
  const { state } = decodeView("?v=1&f=now/d&u=now-2d/d");
  expect([state.from, state.until]).toEqual([yesterday, String(today)]);
});

test("unusable ids are dropped, others stay", () => {
  const uuid = "11111111-2222-4333-8444-55555555555a";
  const { state, notices } = decodeView(`?v=1&id=zzz,${uuid}&sp=0123456789abcdef,12&tr=${uuid}`);
  expect(state).toEqual({ ...DEFAULT_VIEW, profileIds: [uuid], spanIds: ["0123456789abcdef"] });
  expect(notices).toHaveLength(3);
});

test("random addresses never throw", () => {
  const random = new SeededRandom(6);
  const names = [
    "v",
    "p",
    "q",
    "x",
    "z",
    "n",
    "w",
    "r",
    "id",
    "fr",
    "o",
    "f",
    "u",
    "__proto__",
    "constructor",
  ];
  for (let count = 0; count < 500; count++) {
    const search = `?${random.list(8, () => `${random.pick(names)}=${random.hostileText()}`).join("&")}`;
    const { state } = decodeView(search);
    expect(decodeView(encodeView(state)).state).toEqual(state);
  }
});
