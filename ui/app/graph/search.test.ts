// Tests of the search in names, of its order, and of exact-name patterns.

import { describe, expect, it } from "vitest";
import { exactNameRegex, findMatch, isMatchingNode, matchNames, parseSearch, searchOfName } from "./search";
import { graphOfStacks } from "./testing/stacks";

const NAMES = ["", "main.main", "main.Run", "net/http.(*Server).Serve", "a+b"];
const flagsOf = (search: string) => Array.from(matchNames(NAMES, parseSearch(search)) ?? []);

describe("matchNames", () => {
  it("text_matches_a_part_in_its_letter_case", () => {
    expect(flagsOf("main.")).toEqual([0, 1, 1, 0, 0]);
    expect(flagsOf("run")).toEqual([0, 0, 0, 0, 0]);
    expect(flagsOf("(*Server)")).toEqual([0, 0, 0, 1, 0]);
    expect(flagsOf("net/http")).toEqual([0, 0, 0, 1, 0]);
  });

  it("slashes_make_a_regex", () => {
    expect(flagsOf("/^main\\.[a-z]+$/")).toEqual([0, 1, 0, 0, 0]);
    expect(flagsOf("/(?i)RUN/")).toEqual([0, 0, 1, 0, 0]);
  });

  it("empty_search_has_no_flags", () => {
    expect(matchNames(NAMES, parseSearch(""))).toBeUndefined();
  });

  it("invalid_regex_is_stated", () => {
    const pattern = parseSearch("/(/");
    expect(pattern.kind).toBe("invalid");
    expect(matchNames(NAMES, pattern)).toBeUndefined();
  });
});

describe("findMatch", () => {
  it("matches_follow_in_preorder_and_wrap_around", () => {
    const graph = graphOfStacks([
      { frames: ["a", "b", "a"], value: 5n },
      { frames: ["c", "a"], value: 3n },
    ]);
    const flags = matchNames(graph.names, parseSearch("a")) as Uint8Array;
    expect(findMatch(graph, flags, 0, 1)).toBe(1);
    expect(findMatch(graph, flags, 1, 1)).toBe(3);
    expect(findMatch(graph, flags, 3, 1)).toBe(5);
    expect(findMatch(graph, flags, 5, 1)).toBe(1);
    expect(findMatch(graph, flags, 1, -1)).toBe(5);
    expect(findMatch(graph, matchNames(graph.names, parseSearch("x")) as Uint8Array, 0, 1)).toBe(-1);
  });
});

describe("isMatchingNode", () => {
  it("root_never_matches_although_its_name_is_empty", () => {
    const graph = graphOfStacks([{ frames: ["a", ""], value: 5n }]);
    const flags = matchNames(graph.names, parseSearch("/^$/")) as Uint8Array;
    expect([0, 1, 2].map((node) => isMatchingNode(graph, flags, node))).toEqual([false, false, true]);
    expect(findMatch(graph, flags, 2, 1)).toBe(2);
  });
});

describe("searchOfName", () => {
  it.each([
    ["main.main", "main.main"],
    ["", "/^$/"],
    ["/usr/", "/^/usr/$/"],
  ])("%j_is_searched_for_by_%s", (name, search) => {
    expect(searchOfName(name)).toBe(search);
    expect(matchNames([name, "main.main", "x"], parseSearch(search))?.[0]).toBe(1);
  });
});

describe("exactNameRegex", () => {
  it.each(NAMES.slice(1))("%s_matches_itself_only", (name) => {
    const regex = new RegExp(exactNameRegex(name));
    expect(NAMES.filter((candidate) => regex.test(candidate))).toEqual([name]);
  });
});
