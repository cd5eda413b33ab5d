// Tests of shell commands.

import { expect, test } from "vitest";
import {
  curlCommand,
  exportUrl,
  seriesCommand,
  shellQuote,
  topCommand,
  transformFlags,
} from "./request_commands";

const server = { baseUrl: "http://127.0.0.1:4040/prof/", tenant: "a|b" };
const query = { profileType: "a:b:c::", selector: '{pod="x\'y"}', start: "1000", end: "61500" };

test("quotes_survive_the_shell", () => {
  expect(shellQuote("plain-1.2")).toBe("plain-1.2");
  expect(shellQuote("it's")).toBe("'it'\\''s'");
  expect(shellQuote("=main.run")).toBe("'=main.run'");
  expect(shellQuote("a=b")).toBe("a=b");
  expect(shellQuote("")).toBe("''");
});

test("curl_has_tenant_body_and_prefix", () => {
  const command = curlCommand("athanor.v1.ExploreService/Graph", { query }, server);
  expect(command).toContain("-H 'X-Scope-OrgID: a|b'");
  expect(command).toContain("http://127.0.0.1:4040/prof/athanor.v1.ExploreService/Graph");
  expect(command).toContain("x'\\''y");
});

test("top_has_exact_times_and_transforms_in_order", () => {
  const transforms = [
    { action: "focus", pattern: "main", isRegex: false },
    { action: "showFrom", pattern: "=x|-y", isRegex: true },
    { action: "collapseRecursion", pattern: undefined, isRegex: false },
    { action: "collapseRecursion", pattern: "", isRegex: false },
    { action: "collapseBelow", pattern: "f", isRegex: false },
  ] as const;
  const { command } = topCommand({ query, transforms }, 20, server);
  expect(command).toContain("--since 1970-01-01T00:00:01Z --until 1970-01-01T00:01:01.500Z");
  expect(command).toContain("--url http://127.0.0.1:4040/prof --tenant 'a|b' --limit 20");
  expect(transformFlags(transforms)).toBe(
    " --focus '=main' --show-from '[=]x|-y' --collapse recursion --collapse recursion:= --collapse below:=f",
  );
});

test("pattern_that_begins_with_a_dash_stays_a_value", () => {
  expect(transformFlags([{ action: "hide", pattern: "-x", isRegex: true }])).toBe(" --hide=-x");
});

test("selection_of_single_profiles_is_stated_as_omitted", () => {
  const { omissions } = topCommand(
    { query: { ...query, profileIdSelector: ["1"] }, transforms: [] },
    20,
    server,
  );
  expect(omissions).toEqual(["profile ids"]);
});

test("series_command_has_group_and_step", () => {
  const { command } = seriesCommand({ query, groupBy: ["pod"], stepSeconds: 15, limit: 10 }, server);
  expect(command).toMatch(/ --by pod --step 15s --limit 10$/);
});

test("export_has_transforms_in_order", () => {
  const transforms = [
    { action: "showFrom", pattern: "a b", isRegex: false },
    { action: "hide", pattern: "^x", isRegex: true },
  ] as const;
  const url = exportUrl({ query, transforms }, "pprof", server.baseUrl);
  expect(url).toBe(
    "http://127.0.0.1:4040/prof/athanor/export?query=a%3Ab%3Ac%3A%3A%7Bpod%3D%22x%27y%22%7D" +
      "&from=1970-01-01T00%3A00%3A01Z&until=1970-01-01T00%3A01%3A01.500Z&format=pprof&show_from=%3Da+b&hide=%5Ex",
  );
});
