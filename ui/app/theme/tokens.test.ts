// Test of the contrast of all pairs of tokens that components put together.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const MIN_TEXT_CONTRAST = 4.5;
const MIN_CONTROL_CONTRAST = 3;

const css = readFileSync(new URL("./tokens.css", import.meta.url), "utf8");

const rawTokens = readTokens(css.slice(0, css.indexOf('[data-theme="light"]')));

function readTokens(text: string): Map<string, string> {
  return new Map(
    Array.from(text.matchAll(/(--[\w-]+):\s*([^;]+);/g), ([, name = "", value = ""]) => [name, value]),
  );
}

/** Returns the rule that begins with a selector. */
function readRule(selector: string): Map<string, string> {
  const start = css.indexOf(`${selector} {`);
  expect(start, selector).toBeGreaterThan(0);
  return readTokens(css.slice(start, css.indexOf("}", start)));
}

function luminance(color: string): number {
  const channels = [1, 3, 5].map((start) => Number.parseInt(color.slice(start, start + 2), 16) / 255);
  const [red = 0, green = 0, blue = 0] = channels.map((part) =>
    part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(left: string, right: string): number {
  const [dark = 0, light = 0] = [luminance(left), luminance(right)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

const SURFACES = ["page", "surface", "raised", "sunken", "hover"];
const TEXT_PAIRS: readonly (readonly [text: string, surface: string])[] = [
  ...["text", "text-muted", "accent", "brand", "warning", "error", "success"].flatMap((text) =>
    SURFACES.map((surface) => [text, surface] as const),
  ),
  ["on-accent", "accent"],
  ["text", "accent-surface"],
  ["text-muted", "accent-surface"],
  ["accent", "accent-surface"],
  ["text", "warning-surface"],
  ["warning", "warning-surface"],
  ["text", "error-surface"],
  ["error", "error-surface"],
];
const CONTROL_PAIRS = ["control-border", "focus", "accent"].flatMap((control) =>
  ["page", "surface", "raised"].map((surface) => [control, surface] as const),
);

for (const theme of ["light", "dark"]) {
  const rule = readRule(`:root[data-theme="${theme}"]`);
  const color = (name: string) => {
    const value = rule.get(`--color-${name}`) ?? "";
    return rawTokens.get(/var\((.*)\)/.exec(value)?.[1] ?? "") ?? value;
  };

  test(`text of the ${theme} theme has enough contrast`, () => {
    for (const [text, surface] of TEXT_PAIRS) {
      expect(contrast(color(text), color(surface)), `${text} on ${surface}`).toBeGreaterThanOrEqual(
        MIN_TEXT_CONTRAST,
      );
    }
  });

  test(`controls of the ${theme} theme have enough contrast`, () => {
    for (const [control, surface] of CONTROL_PAIRS) {
      expect(contrast(color(control), color(surface)), `${control} on ${surface}`).toBeGreaterThanOrEqual(
        MIN_CONTROL_CONTRAST,
      );
    }
  });
}

test("the dark theme of the system equals the chosen one", () => {
  expect(readRule(':root:not([data-theme="light"])')).toEqual(readRule(':root[data-theme="dark"]'));
});
