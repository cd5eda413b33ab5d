// Three responses of a sandwich, and how their values fit together.

import type { SandwichResponse } from "../api/types";
import type { Graph } from "../graph/graph";
import { averageOf, summedValue } from "../graph/values";

/** Loads after the first that a sandwich may take until its responses agree. */
const MAX_RELOADS = 2;

/** Responses to the three requests of a sandwich. Profiles may arrive between the requests. */
export interface SandwichParts {
  readonly response: SandwichResponse;
  readonly callers: Graph;
  readonly callees: Graph;
  readonly warnings: readonly string[];
}

export interface FittedParts extends SandwichParts {
  /** Whether all parts have the same total of the function. */
  readonly areSameTime: boolean;
}

/**
 * Loads the parts until all of them have the same total of the function. Stops after some loads, or if a load has the
 * same totals as the one before. Shares of both graphs then refer to the response, so none of them is over 100 %.
 */
export async function loadFittedParts(load: () => Promise<SandwichParts>): Promise<FittedParts> {
  let parts = await load();
  let totals = totalsOf(parts);
  for (let reloads = 0; reloads < MAX_RELOADS && !areEqual(totals); reloads++) {
    const before = totals;
    parts = await load();
    totals = totalsOf(parts);
    if (totals.join() === before.join()) break;
  }
  return {
    ...parts,
    callers: withShareOf(parts.callers, parts.response),
    callees: withShareOf(parts.callees, parts.response),
    areSameTime: areEqual(totals),
  };
}

/** Returns the total of the function in each part, as it is displayed. */
function totalsOf({ response, callers, callees }: SandwichParts): readonly bigint[] {
  const totalOf = (graph: Graph) => averageOf(summedValue(graph, 0, "total"), graph.averagedProfiles);
  return [BigInt(response.total ?? 0), totalOf(callers), totalOf(callees)];
}

function areEqual(totals: readonly bigint[]): boolean {
  return totals.every((total) => total === totals[0]);
}

/**
 * Returns a graph whose query total gives its root the share that the function has in the response. The graphs contain
 * only stacks with the function, and sums where the response has averages.
 */
function withShareOf(graph: Graph, response: SandwichResponse): Graph {
  const sum = summedValue(graph, 0, "total");
  const total = BigInt(response.total ?? 0);
  const queryTotal = BigInt(response.queryTotal ?? 0);
  return { ...graph, queryTotal: total === 0n ? queryTotal : divide(sum * queryTotal, total) };
}

function divide(dividend: bigint, divisor: bigint): bigint {
  return divisor < 0n ? averageOf(-dividend, -divisor) : averageOf(dividend, divisor);
}
