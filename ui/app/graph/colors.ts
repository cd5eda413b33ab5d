// Colors of frames. One lightness a theme, so that no frame weighs more than its width says.

import { CodeKind, type NameKinds } from "./code_kind";
import type { Graph } from "./graph";
import { type RgbColor, rgbFromOklch } from "./oklch";

export type ColorScheme = "package" | "binary" | "share";

/** Hues of application code, and strengths of each hue. */
const HUE_COUNT = 36;
const STRENGTH_COUNT = 2;
const HASHED_SLOTS = HUE_COUNT * STRENGTH_COUNT;
const KERNEL_SLOT = HASHED_SLOTS;
const RUNTIME_SLOT = HASHED_SLOTS + 1;
const UNKNOWN_SLOT = HASHED_SLOTS + 2;
const SHARE_SLOT = HASHED_SLOTS + 3;
/** Steps between the color of no share and that of the whole. */
export const SHARE_STEPS = 16;
/** Number of slots of a palette. */
export const SLOT_COUNT = SHARE_SLOT + SHARE_STEPS;

/** Hues of the least and of the greatest share: blue and orange stay apart in all kinds of color blindness. */
const COLD_HUE = 255;
const HOT_HUE = 55;

/** Colors of one theme. */
export interface FrameColors {
  /** Fill of each slot. */
  readonly fills: readonly RgbColor[];
  readonly label: RgbColor;
  /** Surface below the frames, as in the tokens of the theme. */
  readonly background: RgbColor;
  /** Frames that a search does not match. */
  readonly dimmedFill: RgbColor;
  readonly dimmedLabel: RgbColor;
  /** Boxes that stand for many callees, or for callees that the server left out. */
  readonly mergedFill: RgbColor;
  readonly hiddenFill: RgbColor;
  readonly hiddenLabel: RgbColor;
  readonly selection: RgbColor;
  readonly hover: RgbColor;
  readonly focusRing: RgbColor;
  /** Strokes of patterns, with their opacity. */
  readonly pattern: RgbColor;
  readonly patternOpacity: number;
}

interface ThemeLevels {
  readonly lightness: number;
  readonly strongChroma: number;
  readonly weakChroma: number;
}

const LIGHT_LEVELS: ThemeLevels = { lightness: 0.825, strongChroma: 0.105, weakChroma: 0.055 };
const DARK_LEVELS: ThemeLevels = { lightness: 0.46, strongChroma: 0.11, weakChroma: 0.056 };

function fillsOf(levels: ThemeLevels): RgbColor[] {
  const { lightness, strongChroma, weakChroma } = levels;
  const fills: RgbColor[] = [];
  for (let slot = 0; slot < HASHED_SLOTS; slot++) {
    const hue = ((slot % HUE_COUNT) * 360) / HUE_COUNT;
    fills.push(rgbFromOklch(lightness, slot < HUE_COUNT ? strongChroma : weakChroma, hue));
  }
  fills.push(rgbFromOklch(lightness, strongChroma, 70));
  fills.push(rgbFromOklch(lightness, (strongChroma + weakChroma) / 2, 255));
  fills.push(rgbFromOklch(lightness, 0, 0));
  for (let step = 0; step < SHARE_STEPS; step++) {
    const share = step / (SHARE_STEPS - 1);
    // Through gray: the way around the wheel passes hues that look alike to the color-blind.
    const signed = 2 * share - 1;
    const hue = signed < 0 ? COLD_HUE : HOT_HUE;
    fills.push(rgbFromOklch(lightness, Math.abs(signed) * strongChroma * 1.15, hue));
  }
  return fills;
}

const LIGHT_COLORS: FrameColors = {
  fills: fillsOf(LIGHT_LEVELS),
  label: rgbFromOklch(0.21, 0.02, 265),
  background: { red: 1, green: 1, blue: 1 },
  dimmedFill: rgbFromOklch(0.965, 0.004, 265),
  dimmedLabel: rgbFromOklch(0.5, 0.01, 265),
  mergedFill: rgbFromOklch(0.88, 0.008, 265),
  hiddenFill: rgbFromOklch(0.965, 0.006, 265),
  hiddenLabel: rgbFromOklch(0.4, 0.02, 265),
  selection: rgbFromOklch(0.25, 0.02, 265),
  hover: rgbFromOklch(0.45, 0.02, 265),
  focusRing: rgbFromOklch(0.5, 0.2, 262),
  pattern: rgbFromOklch(0.2, 0, 0),
  patternOpacity: 0.16,
};

const DARK_COLORS: FrameColors = {
  fills: fillsOf(DARK_LEVELS),
  label: rgbFromOklch(0.975, 0.005, 265),
  background: { red: 0x16 / 255, green: 0x1a / 255, blue: 0x23 / 255 },
  dimmedFill: rgbFromOklch(0.27, 0.008, 265),
  dimmedLabel: rgbFromOklch(0.69, 0.01, 265),
  mergedFill: rgbFromOklch(0.37, 0.01, 265),
  hiddenFill: rgbFromOklch(0.25, 0.01, 265),
  hiddenLabel: rgbFromOklch(0.82, 0.01, 265),
  selection: rgbFromOklch(0.97, 0.01, 265),
  hover: rgbFromOklch(0.8, 0.01, 265),
  focusRing: rgbFromOklch(0.72, 0.15, 255),
  pattern: rgbFromOklch(0.12, 0, 0),
  patternOpacity: 0.34,
};

export function frameColors(isDark: boolean): FrameColors {
  return isDark ? DARK_COLORS : LIGHT_COLORS;
}

/** Hash of a text (FNV-1a with a final mix). It never changes, so that a package has one color in all sessions. */
export function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** Returns the slot of a package or a binary. */
export function slotOfText(text: string): number {
  return hashText(text) % HASHED_SLOTS;
}

/** Returns the slot of a share from 0 to 1. Small shares are spread: most frames are small. */
export function slotOfShare(share: number): number {
  const bounded = Math.sqrt(Math.min(1, Math.max(0, share)));
  return SHARE_SLOT + Math.min(SHARE_STEPS - 1, Math.floor(bounded * SHARE_STEPS));
}

export function slotOfKind(kind: CodeKind): number | undefined {
  if (kind === CodeKind.kernel) return KERNEL_SLOT;
  if (kind === CodeKind.runtime) return RUNTIME_SLOT;
  return kind === CodeKind.unknown ? UNKNOWN_SLOT : undefined;
}

const NO_SLOT = 255;

/** Slots of the names of one graph, computed when a name is drawn. `share` colors nodes instead; see `slotOfShare`. */
export class NameSlots {
  private readonly slots: Uint8Array;

  constructor(
    private readonly graph: Graph,
    private readonly kinds: NameKinds,
    private readonly scheme: "package" | "binary",
  ) {
    this.slots = new Uint8Array(graph.names.length).fill(NO_SLOT);
  }

  slotOf(name: number): number {
    const known = this.slots[name] as number;
    if (known !== NO_SLOT) return known;
    const slot = slotOfKind(this.kinds.kindOf(name)) ?? slotOfText(colorKey(this.graph, name, this.scheme));
    this.slots[name] = slot;
    return slot;
  }
}

function colorKey(graph: Graph, index: number, scheme: "package" | "binary"): string {
  const binary = graph.binaries[graph.nameBinary[index] as number] as string;
  if (scheme === "binary") return binary;
  const packageName = graph.packages[graph.namePackage[index] as number] as string;
  if (packageName !== "") return packageName;
  return binary !== "" ? binary : (graph.files[graph.nameFile[index] as number] as string);
}
