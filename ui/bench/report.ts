// Lines of the benches: measured, goal, floor.

const NAME_WIDTH = 52;
const NUMBER_WIDTH = 10;

/** One figure. A goal is an upper bound. The floor is the least that the same result can cost. */
export interface Figure {
  readonly name: string;
  readonly measured: number;
  readonly unit: string;
  readonly goal?: number;
  readonly floor?: number;
  /** Names the floor, or states how the figure was measured. */
  readonly note?: string;
}

function numberText(value: number | undefined): string {
  if (value === undefined) return "-".padStart(NUMBER_WIDTH);
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(digits).padStart(NUMBER_WIDTH);
}

/** Prints the title of a part and the names of its columns. */
export function reportPart(title: string): void {
  const columns = ["measured", "goal", "floor"].map((column) => column.padStart(NUMBER_WIDTH)).join("");
  console.log(`\n${title.padEnd(NAME_WIDTH)}${columns}`);
}

export function report({ name, measured, unit, goal, floor, note }: Figure): void {
  const numbers = [measured, goal, floor].map(numberText).join("");
  const verdict = goal === undefined ? "" : measured <= goal ? "met" : "missed";
  const end = [unit.padEnd(5), verdict.padEnd(6), note ?? ""].join(" ").trimEnd();
  console.log(`${name.padEnd(NAME_WIDTH)}${numbers} ${end}`);
}

/** Returns the value below which a share of the values lies. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((first, second) => first - second);
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}
