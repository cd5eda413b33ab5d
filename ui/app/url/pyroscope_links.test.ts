// Tests of links of Pyroscope.
import { expect, test } from "vitest";
import { decodeLocation, findProfileType, parseOldQuery } from "./pyroscope_links";
import { DEFAULT_VIEW } from "./view_state";

const decode = (link: string) => decodeLocation(new URL(link, "http://host/"));

test("query of an application opens its service and type", () => {
  const query = encodeURIComponent('shop.alloc_space{pod="a"}');
  for (const path of ["/ui/", "/prefix/ui/explore"]) {
    const { state, notices } = decode(`${path}?query=${query}&from=now-2h&until=now`);
    expect(notices).toEqual([]);
    expect(state).toEqual({
      ...DEFAULT_VIEW,
      page: "explore",
      profileType: "memory:alloc_space:bytes:space:bytes",
      selector: '{service_name=~"shop|shop\\\\.alloc_space", pod="a"}',
      from: "now-2h",
      until: "now",
    });
  }
});

test("query with a profile type keeps type and selector", () => {
  const query = encodeURIComponent('process_cpu:cpu:nanoseconds:cpu:nanoseconds{service_name="a.b"}');
  const { state } = decode(`/ui/explore?query=${query}&from=1700000000&until=1700003600`);
  expect(state.profileType).toBe("process_cpu:cpu:nanoseconds:cpu:nanoseconds");
  expect(state.selector).toBe('{service_name="a.b"}');
  expect([state.from, state.until]).toEqual(["1700000000000", "1700003600000"]);
});

test("all times of Pyroscope and of its servers are read", () => {
  const second = 1_772_445_600;
  const digits = [second, `${second}000`, `${second}000000`, `${second}000000000`];
  for (const [parameters, stored] of [
    ...digits.map((from) => [`from=${from}&until=now`, [`${second}000`, "now"]] as const),
    ["from=1h", ["now-1h", "now"]],
    ["from=1h&until=1772445600", ["1772442000000", "1772445600000"]],
    ["from=now-30d&until=", ["now-30d", "now"]],
    ["from=yesterday&until=today", ["yesterday", "today"]],
    ["from=now-1d/d&to=now-1d/d", ["now-1d/d", "now-1d/d"]],
    ["from=20260302", ["1772409600000", "now"]],
  ] as const) {
    const { state, notices } = decode(`/ui/?query=shop.cpu&${parameters}`);
    expect([state.from, state.until], parameters).toEqual(stored);
    expect(notices, parameters).toEqual([]);
  }
});

test("comparison opens the left side with a notice", () => {
  const { state, notices } = decode(
    "/ui/comparison?query=other.cpu&leftQuery=shop.cpu%7B%7D&leftFrom=now-1h&leftUntil=now-30m&rightQuery=shop.cpu%7B%7D",
  );
  expect(notices).toHaveLength(1);
  expect(notices[0]).toContain("left side");
  expect(state.selector).toBe('{service_name=~"shop|shop\\\\.cpu"}');
  expect([state.from, state.until]).toEqual(["now-1h", "now-30m"]);
});

test("all suffixes of old clients have a profile type", () => {
  const suffixes =
    "cpu itimer wall alloc_objects alloc_space inuse_objects inuse_space goroutines mutex_count mutex_duration " +
    "block_count block_duration lock_count lock_duration live exceptions alloc_in_new_tlab_bytes";
  for (const suffix of suffixes.split(" ")) {
    const parsed = parseOldQuery(`a.b.${suffix}{}`);
    expect(parsed?.profileType.split(":"), suffix).toHaveLength(5);
    expect(parsed?.selector).toContain("a\\\\.b|");
  }
  expect(parseOldQuery("shop")).toEqual({
    profileType: "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
    selector: '{service_name="shop"}',
  });
});

test("application with an unknown suffix keeps its service, with a notice", () => {
  const { state, notices } = decode("/ui/?query=my.shop%7Bpod%3D%22a%22%7D");
  expect(notices).toHaveLength(1);
  expect(notices[0]).toContain("application my.shop ");
  expect(state).toMatchObject({
    page: "explore",
    profileType: "",
    selector: '{service_name=~"my|my\\\\.shop", pod="a"}',
  });
});

test("unreadable parts give notices and the nearest view", () => {
  const { state, notices } = decode("/ui/?query=no%20app.unknown&from=yesterdayish");
  expect(notices).toHaveLength(2);
  expect(state.page).toBe("fleet");
  expect(state.from).toBe(DEFAULT_VIEW.from);
});

test("names of built-in properties are no types", () => {
  for (const name of ["constructor", "__proto__", "toString"]) {
    expect(decode(`/ui/?query=app.${name}{}`).notices).toHaveLength(1);
    expect(findProfileType(name, ["a:b:c:d:e"])).toBeUndefined();
  }
});

test("own links are not taken for old ones", () => {
  expect(decode("/ui/?v=1&p=explore&q=%7B%7D").state.page).toBe("explore");
});

test("type without a period is found in the list", () => {
  const types = ["memory:inuse_space:bytes:inuse:bytes", "goroutine:goroutine:count:x:y"];
  expect(findProfileType("memory:inuse_space:bytes:space:bytes", types)).toBe(types[0]);
  expect(findProfileType("goroutines:goroutine:count:goroutine:count", types)).toBe(types[1]);
  expect(findProfileType("process_cpu:cpu:nanoseconds:cpu:nanoseconds", types)).toBeUndefined();
});
