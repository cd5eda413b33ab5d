// Tests of transforms made from frames and from text.

import { beforeAll, describe, expect, it, vi } from "vitest";

type Transforms = typeof import("./transforms");

let transforms: Transforms;

beforeAll(async () => {
  // The store reads the page's address when it is imported.
  vi.stubGlobal("location", new URL("http://127.0.0.1/ui/"));
  vi.stubGlobal("history", { state: null, pushState: vi.fn(), replaceState: vi.fn() });
  transforms = await import("./transforms");
});

describe("transformOfFrame", () => {
  it("functions_are_matched_by_exact_name", () => {
    expect(transforms.transformOfFrame("hide", "a+b", "function")).toEqual({
      action: "hide",
      pattern: "a+b",
      isRegex: false,
    });
  });

  it("frames_of_lines_are_matched_by_their_function", () => {
    expect(transforms.transformOfFrame("focus", "main.run /src/main.go:17", "line").pattern).toBe("main.run");
  });

  it("empty_name_is_the_name_of_a_function", () => {
    const transform = transforms.transformOfFrame("collapseRecursion", "", "function");
    expect(transform).toEqual({ action: "collapseRecursion", pattern: "", isRegex: false });
    expect(transforms.showPattern(transform)).toBe("(no name)");
    expect(transforms.transformOfFrame("hide", " /src/main.go:17", "line").pattern).toBe("");
    expect(transforms.transformOfFrame("hide", " :17", "line").pattern).toBe("");
  });

  it("files_and_binaries_are_matched_by_regex", () => {
    expect(transforms.transformOfFrame("focus", "/src/main.go", "file")).toEqual({
      action: "focus",
      pattern: "^/src/main\\.go$",
      isRegex: true,
    });
    const { pattern = "" } = transforms.transformOfFrame("focus", "libc.so.6@1a2b3c4d", "binary");
    expect(new RegExp(pattern).test("/usr/lib/libc.so.6")).toBe(true);
    expect(new RegExp(pattern).test("libc.so.6")).toBe(true);
    expect(new RegExp(pattern).test("/usr/lib/xlibc.so.6")).toBe(false);
  });
});

describe("parseTransform", () => {
  it("slashes_make_a_regex", () => {
    expect(transforms.parseTransform("show", "/^main/")).toEqual({
      action: "show",
      pattern: "^main",
      isRegex: true,
    });
    expect(transforms.parseTransform("show", "main.a")).toEqual({
      action: "show",
      pattern: "main.a",
      isRegex: false,
    });
  });

  it("only_recursion_needs_no_pattern", () => {
    expect(transforms.parseTransform("focus", "")).toBeUndefined();
    const transform = transforms.parseTransform("collapseRecursion", "");
    expect(transform).toEqual({ action: "collapseRecursion", pattern: undefined, isRegex: false });
    expect(transform && transforms.showPattern(transform)).toBe("all functions");
  });
});
