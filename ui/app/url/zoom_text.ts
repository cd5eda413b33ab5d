// Range of a zoom between frames as text of a link: `0.25-0.5`, shares of the root's total.

/** Digits that a link keeps. The narrowest range still has several. */
const RANGE_DIGITS = 15;
const NUMBER = String.raw`\d+(?:\.\d+)?(?:e-\d+)?`;
const RANGE = new RegExp(`^(${NUMBER})-(${NUMBER})$`);

/** Returns the range of a text, or undefined if it is none within the graph. */
export function parseZoomRange(text: string): { readonly from: number; readonly to: number } | undefined {
  const parts = RANGE.exec(text);
  const from = Number(parts?.[1]);
  const to = Number(parts?.[2]);
  return from >= 0 && to <= 1 && from < to ? { from, to } : undefined;
}

export function writeZoomRange({ from, to }: { readonly from: number; readonly to: number }): string {
  const write = (share: number) => String(Number(share.toPrecision(RANGE_DIGITS)));
  return `${write(from)}-${write(to)}`;
}
