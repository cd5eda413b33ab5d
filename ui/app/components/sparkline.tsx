// Sparkline on a canvas.

import { useLayoutEffect, useRef } from "preact/hooks";
import { drawSparkline } from "../canvas/sparkline";
import { isDark } from "../theme/theme";
import "./sparkline.css";

interface SparklineProps {
  readonly points: Float64Array;
  /** Text for screen readers. */
  readonly label: string;
}

export function Sparkline({ points, label }: SparklineProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = isDark.value;
  useLayoutEffect(() => {
    const element = canvas.current;
    if (element === null) return;
    const style = getComputedStyle(element);
    const colors = {
      line: style.getPropertyValue("--color-chart-line"),
      area: style.getPropertyValue("--color-chart-area"),
    };
    drawSparkline(element, points, colors, devicePixelRatio);
  }, [points, theme]);
  return <canvas class="sparkline" ref={canvas} role="img" aria-label={label} />;
}
