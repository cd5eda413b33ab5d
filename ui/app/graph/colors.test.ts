// Tests of colors: contrast of labels, distances under three kinds of color blindness, determinism.

import { describe, expect, it } from "vitest";
import { CodeKind, classifyCode } from "./code_kind";
import { frameColors, SLOT_COUNT, slotOfKind, slotOfShare, slotOfText } from "./colors";
import { blendColors, contrastRatio, linearLight, oklabFromLinear, type RgbColor } from "./oklch";

type Matrix = readonly (readonly [number, number, number])[];

/** Machado, Oliveira, Fernandes 2009, severity 1. */
const COLOR_BLINDNESS: Readonly<Record<string, Matrix>> = {
  none: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

/** Distance in OKLab times 100. About 2 is just noticeable side by side. */
const MIN_DISTANCE = 5;
/** Of steps of one scale, which lie side by side in order. */
const MIN_STEP_DISTANCE = 4;
const THEMES = [false, true];
const VISIONS = Object.keys(COLOR_BLINDNESS);
const CASES = THEMES.flatMap((isDark) => VISIONS.map((vision) => ({ isDark, vision })));

function see(color: RgbColor, vision: string): RgbColor {
  const linear = linearLight(color);
  const matrix = COLOR_BLINDNESS[vision] as Matrix;
  const channel = (row: number) => {
    const [red, green, blue] = matrix[row] as readonly [number, number, number];
    return Math.min(1, Math.max(0, red * linear.red + green * linear.green + blue * linear.blue));
  };
  return { red: channel(0), green: channel(1), blue: channel(2) };
}

function distance(first: RgbColor, second: RgbColor, vision: string): number {
  const one = oklabFromLinear(see(first, vision));
  const other = oklabFromLinear(see(second, vision));
  return 100 * Math.hypot(one.lightness - other.lightness, one.a - other.a, one.b - other.b);
}

describe("frameColors", () => {
  it.each(THEMES)("labels_have_a_contrast_of_4_5 (dark %s)", (isDark) => {
    const colors = frameColors(isDark);
    expect(colors.fills).toHaveLength(SLOT_COUNT);
    for (const fill of colors.fills) {
      expect(contrastRatio(colors.label, fill)).toBeGreaterThanOrEqual(4.5);
      // Strokes of patterns lie below labels.
      const stroke = blendColors(colors.pattern, colors.patternOpacity, fill);
      expect(contrastRatio(colors.label, stroke)).toBeGreaterThanOrEqual(4.5);
    }
    expect(contrastRatio(colors.dimmedLabel, colors.dimmedFill)).toBeGreaterThanOrEqual(4.5);
    const hiddenStroke = blendColors(colors.pattern, colors.patternOpacity, colors.hiddenFill);
    expect(contrastRatio(colors.hiddenLabel, colors.hiddenFill)).toBeGreaterThanOrEqual(4.5);
    expect(contrastRatio(colors.hiddenLabel, hiddenStroke)).toBeGreaterThanOrEqual(4.5);
    expect(contrastRatio(colors.label, colors.background)).toBeGreaterThanOrEqual(4.5);
  });

  it.each(THEMES)("rings_have_a_contrast_of_3_against_fills (dark %s)", (isDark) => {
    const colors = frameColors(isDark);
    for (const fill of [...colors.fills, colors.background, colors.dimmedFill]) {
      expect(contrastRatio(colors.selection, fill)).toBeGreaterThanOrEqual(3);
    }
    expect(contrastRatio(colors.focusRing, colors.background)).toBeGreaterThanOrEqual(3);
  });

  it.each(THEMES)("fills_have_one_lightness (dark %s)", (isDark) => {
    const lightness = frameColors(isDark).fills.map((fill) => oklabFromLinear(linearLight(fill)).lightness);
    expect(Math.max(...lightness) - Math.min(...lightness)).toBeLessThan(0.01);
  });

  it.each(CASES)("kinds_of_code_differ ($vision, dark $isDark)", ({ isDark, vision }) => {
    const { fills } = frameColors(isDark);
    const kinds = [CodeKind.kernel, CodeKind.runtime, CodeKind.unknown].map(
      (kind) => fills[slotOfKind(kind) as number],
    );
    for (const first of kinds) {
      for (const second of kinds) {
        if (first === second) continue;
        expect(distance(first as RgbColor, second as RgbColor, vision)).toBeGreaterThanOrEqual(MIN_DISTANCE);
      }
    }
  });

  it.each(CASES)("matches_differ_from_dimmed_frames ($vision, dark $isDark)", ({ isDark, vision }) => {
    const colors = frameColors(isDark);
    for (const fill of colors.fills) {
      expect(distance(fill, colors.dimmedFill, vision)).toBeGreaterThanOrEqual(2 * MIN_DISTANCE);
    }
  });

  it.each(CASES)("least_and_greatest_share_differ ($vision, dark $isDark)", ({ isDark, vision }) => {
    const { fills } = frameColors(isDark);
    const steps = [0, 0.25, 1].map((share) => fills[slotOfShare(share)] as RgbColor);
    const [none, quarter, whole] = steps as [RgbColor, RgbColor, RgbColor];
    expect(distance(none, whole, vision)).toBeGreaterThanOrEqual(2 * MIN_DISTANCE);
    expect(distance(none, quarter, vision)).toBeGreaterThanOrEqual(MIN_STEP_DISTANCE);
    expect(distance(quarter, whole, vision)).toBeGreaterThanOrEqual(MIN_STEP_DISTANCE);
  });

  it("slots_never_change", () => {
    expect(["net/http", "main", "shop::cart", "", "日本"].map(slotOfText)).toMatchInlineSnapshot(`
      [
        45,
        12,
        67,
        59,
        29,
      ]
    `);
  });
});

describe("classifyCode", () => {
  it.each([
    ["tcp_sendmsg", "[kernel.kallsyms]", "", "kernel"],
    ["tcp_sendmsg", "[kernel.kallsyms]@1a2b3c", "", "kernel"],
    ["nf_hook", "/lib/modules/6.1/nf_tables.ko.xz", "", "kernel"],
    ["do_syscall_64", "", "", "kernel"],
    ["vfs_read_[k]", "", "", "kernel"],
    ["0x7f12ab", "/usr/bin/shop", "", "unknown"],
    ["/usr/bin/shop", "/usr/bin/shop", "", "unknown"],
    ["[unknown]", "", "", "unknown"],
    ["", "", "", "unknown"],
    ["runtime.gcBgMarkWorker", "/usr/bin/shop", "runtime", "runtime"],
    ["core::ops::function::FnOnce::call_once", "", "", "runtime"],
    ["<alloc::vec::Vec<T> as Drop>::drop", "", "", "runtime"],
    ["java.lang.Thread.run", "", "", "runtime"],
    ["__memcpy_avx", "/usr/lib/libc.so.6", "", "runtime"],
    ["__memcpy_avx", "libc.so.6@1a2b3c4d", "", "runtime"],
    ["G1ParScan", "/opt/jdk/lib/server/libjvm.so", "", "runtime"],
    ["main.main", "/usr/bin/shop", "main", "application"],
    ["shop::cart::add", "/usr/bin/shop", "shop::cart", "application"],
    ["runtimeConfig.load", "/usr/bin/shop", "runtimeConfig", "application"],
    ["stdin::read", "/usr/bin/shop", "", "application"],
  ])("%s_in_%s_of_%s_is_%s", (name, binary, packageName, kind) => {
    expect(classifyCode(name, binary, packageName)).toBe(CodeKind[kind as keyof typeof CodeKind]);
  });
});
