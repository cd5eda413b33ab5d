// Sparkline as vector graphics: many of them are drawn with the page, without a bitmap for each.

import { useMemo } from "preact/hooks";
import { sparklinePaths } from "./sparkline_path";
import "./chart_colors.css";
import "./sparkline.css";

/** Size in CSS pixels. It is fixed, so that drawing needs no measurement of the page. */
export const SPARKLINE_WIDTH = 240;
const SPARKLINE_HEIGHT = 20;

interface SparklineProps {
  readonly points: Float64Array;
  /** Text for screen readers. */
  readonly label: string;
}

export function Sparkline({ points, label }: SparklineProps) {
  const paths = useMemo(
    () => sparklinePaths(points, { width: SPARKLINE_WIDTH, height: SPARKLINE_HEIGHT }),
    [points],
  );
  return (
    <svg class="sparkline" role="img" aria-label={label}>
      <path class="sparkline-area" d={paths.area} />
      <path class="sparkline-line" d={paths.line} />
    </svg>
  );
}
