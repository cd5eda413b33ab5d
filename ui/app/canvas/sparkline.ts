// Drawing of sparklines.

export interface SparklineColors {
  readonly theme: "light" | "dark";
  readonly line: string;
  readonly area: string;
}

export interface SparklineSize {
  /** In CSS pixels. */
  readonly width: number;
  readonly height: number;
  readonly pixelRatio: number;
}

/** Draws values from left to right over the whole canvas. NaN leaves a gap. The scale begins at zero. */
export function drawSparkline(
  canvas: HTMLCanvasElement,
  values: Float64Array,
  colors: SparklineColors,
  size: SparklineSize,
): void {
  const { pixelRatio } = size;
  const width = Math.round(size.width * pixelRatio);
  const height = Math.round(size.height * pixelRatio);
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d");
  if (context === null) return;
  context.clearRect(0, 0, width, height);
  let top = 0;
  for (const value of values) if (value > top) top = value;
  if (top === 0) return;
  const lineWidth = pixelRatio;
  const xOf = (place: number) => ((place + 0.5) / values.length) * width;
  const yOf = (value: number) => height - lineWidth - (value / top) * (height - 2 * lineWidth);
  context.lineWidth = lineWidth;
  context.strokeStyle = colors.line;
  context.fillStyle = colors.area;
  for (const [first, end] of runsOf(values)) drawRun(context, values, first, end, xOf, yOf, height);
}

function drawRun(
  context: CanvasRenderingContext2D,
  values: Float64Array,
  first: number,
  end: number,
  xOf: (place: number) => number,
  yOf: (value: number) => number,
  height: number,
): void {
  const half = (xOf(1) - xOf(0)) / 2;
  const path = new Path2D();
  // A single point is a short line.
  path.moveTo(xOf(first) - half, yOf(values[first] ?? 0));
  for (let place = first; place < end; place++) path.lineTo(xOf(place), yOf(values[place] ?? 0));
  path.lineTo(xOf(end - 1) + half, yOf(values[end - 1] ?? 0));
  const area = new Path2D(path);
  area.lineTo(xOf(end - 1) + half, height);
  area.lineTo(xOf(first) - half, height);
  context.fill(area);
  context.stroke(path);
}

/** Returns the runs of values without gaps, as index of the first value and index after the last. */
export function runsOf(values: Float64Array): [number, number][] {
  const runs: [number, number][] = [];
  let first = -1;
  for (let place = 0; place <= values.length; place++) {
    const isGap = place === values.length || Number.isNaN(values[place]);
    if (!isGap && first < 0) first = place;
    if (isGap && first >= 0) {
      runs.push([first, place]);
      first = -1;
    }
  }
  return runs;
}
