// Tests of selectors.
import { expect, test } from "vitest";
import {
  formatSelector,
  type LabelMatcher,
  MATCH_OPERATORS,
  parseSelector,
  replaceMatcher,
  withLabel,
} from "./selector";
import { SeededRandom } from "./testing/random";

test("random matchers survive as text", () => {
  const random = new SeededRandom(7);
  for (let count = 0; count < 2_000; count++) {
    const matchers: LabelMatcher[] = random.list(5, () => ({
      name: random.below(2) === 0 ? random.pick(["service_name", "k8s.pod", "_x"]) : random.hostileText(),
      operator: random.pick(MATCH_OPERATORS),
      value: random.hostileText(),
    }));
    expect(parseSelector(formatSelector(matchers))).toEqual(matchers);
  }
});

test("selectors of the server are read", () => {
  expect(parseSelector("{}")).toEqual([]);
  expect(parseSelector(` { a = 'x\\n' , "b c" !~ \`y\\\`, } `)).toEqual([
    { name: "a", operator: "=", value: "x\n" },
    { name: "b c", operator: "!~", value: "y\\" },
  ]);
  expect(parseSelector('{a="\\x41\\u00e4\\U0001F600"}')?.[0]?.value).toBe("Aä😀");
});

test("invalid selectors are rejected", () => {
  for (const text of [
    "",
    "a",
    "{a}",
    '{a="b',
    "{a=b}",
    '{a="b" c="d"}',
    "{} x",
    '{a="\\q"}',
    '{1a="b"}',
    '{a="\\U00110000"}',
  ]) {
    expect(parseSelector(text), text).toBeUndefined();
  }
});

test("condition on a label replaces earlier ones", () => {
  const matcher: LabelMatcher = { name: "service_name", operator: "=", value: 'a"b' };
  expect(withLabel('{service_name=~"x", pod="y"}', matcher)).toBe('{pod="y", service_name="a\\"b"}');
  expect(withLabel("{broken", matcher)).toBe('{service_name="a\\"b"}');
});

test("a condition is replaced wherever it is by now", () => {
  const pod = { name: "pod", operator: "=", value: "a" } as const;
  const zone = { name: "zone", operator: "=~", value: "eu.*" } as const;
  expect(replaceMatcher('{zone=~"eu.*",pod="a"}', pod, undefined)).toBe('{zone=~"eu.*"}');
  expect(replaceMatcher('{pod="a"}', pod, zone)).toBe('{zone=~"eu.*"}');
  expect(replaceMatcher('{pod="a"}', undefined, zone)).toBe('{pod="a", zone=~"eu.*"}');
  expect(replaceMatcher('{zone=~"eu.*"}', pod, undefined)).toBe('{zone=~"eu.*"}');
});
