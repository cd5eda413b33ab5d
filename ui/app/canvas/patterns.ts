// Patterns of kinds of code, so that color alone says nothing.

import { CodeKind } from "../graph/code_kind";
import type { FrameColors } from "../graph/colors";
import { cssColor } from "../graph/oklch";

/** Edge of a pattern's tile in CSS pixels. */
const TILE_SIZE = 8;

/** Pattern of each kind of code, and of weight that the server left out. */
export interface PatternSet {
  readonly ofKind: ReadonlyMap<number, CanvasPattern>;
  readonly hidden: CanvasPattern | undefined;
}

type TilePainter = (context: CanvasRenderingContext2D) => void;

const paintStripes: TilePainter = (context) => {
  context.lineWidth = 1.5;
  context.beginPath();
  for (const offset of [-TILE_SIZE, 0, TILE_SIZE]) {
    context.moveTo(offset - 1, TILE_SIZE + 1);
    context.lineTo(offset + TILE_SIZE + 1, -1);
  }
  context.stroke();
};

const paintDots: TilePainter = (context) => {
  for (const [x, y] of [
    [2, 2],
    [6, 6],
  ] as const) {
    context.beginPath();
    context.arc(x, y, 1, 0, 2 * Math.PI);
    context.fill();
  }
};

const paintGrid: TilePainter = (context) => {
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(0, 4);
  context.lineTo(TILE_SIZE, 4);
  context.moveTo(4, 0);
  context.lineTo(4, TILE_SIZE);
  context.stroke();
};

const paintWideStripes: TilePainter = (context) => {
  context.lineWidth = 1;
  context.beginPath();
  for (const offset of [-TILE_SIZE, 0, TILE_SIZE]) {
    context.moveTo(offset - 1, -1);
    context.lineTo(offset + TILE_SIZE + 1, TILE_SIZE + 1);
  }
  context.stroke();
};

function makePattern(
  target: CanvasRenderingContext2D,
  colors: FrameColors,
  pixelRatio: number,
  paint: TilePainter,
): CanvasPattern | undefined {
  const tile = document.createElement("canvas");
  tile.width = Math.max(1, Math.round(TILE_SIZE * pixelRatio));
  tile.height = tile.width;
  const context = tile.getContext("2d");
  if (context === null) return undefined;
  context.scale(tile.width / TILE_SIZE, tile.height / TILE_SIZE);
  context.strokeStyle = cssColor(colors.pattern, colors.patternOpacity);
  context.fillStyle = context.strokeStyle;
  paint(context);
  const pattern = target.createPattern(tile, "repeat");
  pattern?.setTransform(new DOMMatrix().scale(TILE_SIZE / tile.width));
  return pattern ?? undefined;
}

/** Creates the patterns of a theme at a pixel ratio. */
export function createPatterns(
  target: CanvasRenderingContext2D,
  colors: FrameColors,
  pixelRatio: number,
): PatternSet {
  const ofKind = new Map<number, CanvasPattern>();
  const add = (kind: CodeKind, paint: TilePainter) => {
    const pattern = makePattern(target, colors, pixelRatio, paint);
    if (pattern !== undefined) ofKind.set(kind, pattern);
  };
  add(CodeKind.kernel, paintStripes);
  add(CodeKind.runtime, paintDots);
  add(CodeKind.unknown, paintGrid);
  return { ofKind, hidden: makePattern(target, colors, pixelRatio, paintWideStripes) };
}
