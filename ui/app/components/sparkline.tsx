// Sparkline on a canvas.

import { computed } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { drawSparkline, type SparklineColors } from "../canvas/sparkline";
import { isDark } from "../theme/theme";
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

/** Colors of the current theme. All sparklines share them. */
const colors = computed<SparklineColors>(() => {
  const theme = isDark.value ? "dark" : "light";
  const style = getComputedStyle(document.documentElement);
  const colorOf = (name: string) => style.getPropertyValue(`--color-chart-${name}`);
  return { theme, line: colorOf("line"), area: colorOf("area") };
});

export function Sparkline({ points, label }: SparklineProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const currentColors = colors.value;
  useLayoutEffect(() => {
    if (canvas.current === null) return;
    const size = { width: SPARKLINE_WIDTH, height: SPARKLINE_HEIGHT, pixelRatio: devicePixelRatio };
    drawSparkline(canvas.current, points, currentColors, size);
  }, [points, currentColors]);
  return <canvas class="sparkline" ref={canvas} role="img" aria-label={label} />;
}
