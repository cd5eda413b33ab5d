// Exact values of nodes, as they are displayed.

import type { Graph } from "./graph";

export type ValueColumn = "self" | "total" | "truncated";

/** Returns a value of a node in the unit of the profile type, summed over all profiles. */
export function summedValue(graph: Graph, node: number, column: ValueColumn): bigint {
  const multiple = graph.exact?.[column][node] ?? BigInt(graph[column][node] ?? 0);
  return multiple * graph.divisor;
}

/** Returns a value of a node as it is displayed: gauges are averages over their profiles. */
export function displayedValue(graph: Graph, node: number, column: ValueColumn): bigint {
  return averageOf(summedValue(graph, node, column), graph.averagedProfiles);
}

/** Divides a sum by a number of profiles and rounds half away from zero. 0 profiles mean that the sum is no average. */
export function averageOf(sum: bigint, profiles: bigint): bigint {
  if (profiles === 0n) return sum;
  const magnitude = sum < 0n ? -sum : sum;
  const rounded = (2n * magnitude + profiles) / (2n * profiles);
  return sum < 0n ? -rounded : rounded;
}

/** Number of samples behind a value, with the half-width of its 95 % interval. */
export interface SampleCount {
  readonly samples: bigint;
  readonly margin: bigint;
}

/** z of the two-sided 95 % interval. */
const Z_95 = 1.96;

/**
 * Returns the number of samples that make up a sum. The margin is that of a Poisson count, 1.96 times its square root.
 * Returns undefined if the period is unknown or if values are averages.
 */
export function countSamples(
  sum: bigint,
  graph: Pick<Graph, "period" | "averagedProfiles">,
): SampleCount | undefined {
  if (graph.period <= 0n || graph.averagedProfiles > 0n) return undefined;
  const magnitude = sum < 0n ? -sum : sum;
  const samples = (2n * magnitude + graph.period) / (2n * graph.period);
  const margin = BigInt(Math.round(Z_95 * Math.sqrt(Number(samples))));
  return { samples, margin };
}
