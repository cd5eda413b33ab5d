// Paths of sparklines.

export interface SparklineSize {
  readonly width: number;
  readonly height: number;
}

export interface SparklinePaths {
  readonly line: string;
  /** Area between the line and the bottom. */
  readonly area: string;
}

const LINE_WIDTH = 1;

/** Returns paths of values from left to right over the whole width. NaN leaves a gap. The scale begins at zero. */
export function sparklinePaths(values: Float64Array, { width, height }: SparklineSize): SparklinePaths {
  let top = 0;
  for (const value of values) if (value > top) top = value;
  let line = "";
  let area = "";
  if (top === 0) return { line, area };
  const step = width / values.length;
  const yOf = (value: number) => rounded(height - LINE_WIDTH - (value / top) * (height - 2 * LINE_WIDTH));
  for (const [first, end] of runsOf(values)) {
    // A single point is a short line.
    let run = `${rounded(first * step)} ${yOf(values[first] ?? 0)}`;
    for (let place = first; place < end; place++)
      run += `L${rounded((place + 0.5) * step)} ${yOf(values[place] ?? 0)}`;
    run += `L${rounded(end * step)} ${yOf(values[end - 1] ?? 0)}`;
    line += `M${run}`;
    area += `M${rounded(first * step)} ${height}L${run}L${rounded(end * step)} ${height}Z`;
  }
  return { line, area };
}

/** Rounds to a tenth of a pixel, so that paths are short. */
function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}

/** Returns the runs of values without gaps, as index of the first value and index after the last. */
function runsOf(values: Float64Array): [number, number][] {
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
