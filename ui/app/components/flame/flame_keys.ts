// Keys of a flame graph.

import type { GraphDirection } from "../../canvas/geometry";
import type { TransformAction } from "../../url/view_state";

/** Meaning of a key. */
export type FlameCommand =
  | {
      readonly kind: "move";
      readonly to: "caller" | "heaviestCallee" | "previousSibling" | "nextSibling" | "root";
    }
  | { readonly kind: "zoom" | "back" | "search" | "copy" | "menu" }
  | { readonly kind: "match"; readonly step: 1 | -1 }
  | { readonly kind: "scale"; readonly factor: number }
  | { readonly kind: "transform"; readonly action: TransformAction };

/** Part of a keyboard event. */
export interface KeyPress {
  readonly key: string;
  readonly shiftKey: boolean;
  readonly ctrlKey: boolean;
  readonly altKey: boolean;
  readonly metaKey: boolean;
}

const ZOOM_FACTOR = 0.6;

const COMMANDS: Readonly<Record<string, FlameCommand>> = {
  ArrowLeft: { kind: "move", to: "previousSibling" },
  ArrowRight: { kind: "move", to: "nextSibling" },
  Home: { kind: "move", to: "root" },
  Enter: { kind: "zoom" },
  Escape: { kind: "back" },
  "/": { kind: "search" },
  n: { kind: "match", step: 1 },
  N: { kind: "match", step: -1 },
  f: { kind: "transform", action: "focus" },
  i: { kind: "transform", action: "ignore" },
  h: { kind: "transform", action: "hide" },
  s: { kind: "transform", action: "showFrom" },
  c: { kind: "copy" },
  ContextMenu: { kind: "menu" },
  "+": { kind: "scale", factor: ZOOM_FACTOR },
  "=": { kind: "scale", factor: ZOOM_FACTOR },
  "-": { kind: "scale", factor: 1 / ZOOM_FACTOR },
};

/** Returns the meaning of a key, or undefined if it means nothing here. Arrows follow the direction of the graph. */
export function commandOfKey(press: KeyPress, direction: GraphDirection): FlameCommand | undefined {
  if (press.ctrlKey || press.altKey || press.metaKey) return undefined;
  if (press.key === "F10" && press.shiftKey) return { kind: "menu" };
  const towardRoot = direction === "icicle" ? "ArrowUp" : "ArrowDown";
  const fromRoot = direction === "icicle" ? "ArrowDown" : "ArrowUp";
  if (press.key === towardRoot) return { kind: "move", to: "caller" };
  if (press.key === fromRoot) return { kind: "move", to: "heaviestCallee" };
  return Object.hasOwn(COMMANDS, press.key) ? COMMANDS[press.key] : undefined;
}
