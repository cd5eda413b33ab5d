// Tests of the meaning of keys.

import { describe, expect, it } from "vitest";
import { commandOfKey } from "./flame_keys";

const press = (key: string, change = {}) => ({
  key,
  shiftKey: false,
  ctrlKey: false,
  altKey: false,
  metaKey: false,
  ...change,
});

describe("commandOfKey", () => {
  it("arrows_follow_the_direction", () => {
    expect(commandOfKey(press("ArrowUp"), "icicle")).toEqual({ kind: "move", to: "caller" });
    expect(commandOfKey(press("ArrowUp"), "flame")).toEqual({ kind: "move", to: "heaviestCallee" });
    expect(commandOfKey(press("ArrowLeft"), "flame")).toEqual({ kind: "move", to: "previousSibling" });
  });

  it("keys_with_modifiers_belong_to_the_browser", () => {
    expect(commandOfKey(press("c", { ctrlKey: true }), "flame")).toBeUndefined();
    expect(commandOfKey(press("F10", { shiftKey: true }), "flame")).toEqual({ kind: "menu" });
    expect(commandOfKey(press("F10"), "flame")).toBeUndefined();
    expect(commandOfKey(press("constructor"), "flame")).toBeUndefined();
  });
});
