// Tests of names of profile types.
import { expect, test } from "vitest";
import { compareProfileTypes, nameProfileType } from "./profile_types";

test("known types have names and units", () => {
  for (const [type, title, unit] of [
    ["process_cpu:cpu:nanoseconds:cpu:nanoseconds", "CPU time", "cores"],
    ["memory:inuse_space:bytes:space:bytes", "Memory in use", "B"],
    ["memory:alloc_space:bytes:space:bytes", "Allocated memory", "B/s"],
    ["goroutines:goroutine:count:goroutine:count", "Goroutines", ""],
    ["mutex:delay:nanoseconds:mutex:count", "Mutex wait", "s/s"],
    ["process_cpu:samples:count:cpu:nanoseconds", "CPU samples", "/s"],
  ] as const) {
    expect(nameProfileType(type)).toEqual({ title, unit });
  }
});

test("unknown types keep their parts", () => {
  expect(nameProfileType("fruit:apples:kilos::")).toEqual({ title: "fruit: apples", unit: "kilos/s" });
  expect(nameProfileType("off:off:count::").title).toBe("off");
  expect(nameProfileType("").title).toBe("(no name)");
});

test("CPU time is the first of a list", () => {
  const types = [
    "zz:zz:count::",
    "memory:inuse_space:bytes:space:bytes",
    "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
  ];
  expect(types.sort(compareProfileTypes)[0]).toBe("process_cpu:cpu:nanoseconds:cpu:nanoseconds");
});
