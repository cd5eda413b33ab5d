// Names of a graph that the search matches.

import { useEffect, useState } from "preact/hooks";
import type { Graph } from "../../graph/graph";
import { matchNames, parseSearch } from "../../graph/search";
import { joinTexts } from "../../graph/transfer";
import { notify } from "../../url/notices";
import { WorkerClient } from "./worker_client";

/** Time after which a regular expression counts as too slow. */
const REGEX_TIMEOUT_MS = 1_000;

const matcher = new WorkerClient();

/** Returns one flag a name, or undefined without a search. The flags of a regular expression follow later. */
export function useMatches(graph: Graph, search: string): Uint8Array | undefined {
  const { names } = graph;
  const [state, setState] = useState<{
    names: readonly string[];
    search: string;
    flags: Uint8Array | undefined;
  }>();
  const pattern = parseSearch(search);
  const isRegex = pattern.kind === "regex";
  useEffect(() => {
    if (!isRegex) {
      setState({ names, search, flags: matchNames(names, pattern) });
      return;
    }
    const controller = new AbortController();
    void matchInWorker(names, search, controller.signal).then((flags) => {
      if (!controller.signal.aborted) setState({ names, search, flags });
    });
    return () => controller.abort();
  }, [names, search, isRegex]);
  return state?.names === names ? state.flags : undefined;
}

// A regular expression of JavaScript may take exponential time, which only a worker survives.
async function matchInWorker(
  names: readonly string[],
  search: string,
  signal: AbortSignal,
): Promise<Uint8Array | undefined> {
  const timer = setTimeout(() => {
    matcher.stop("timeout");
    notify(
      `The pattern ${search} takes too long to highlight; the number of functions is still exact.`,
      "warning",
    );
  }, REGEX_TIMEOUT_MS);
  try {
    const response = await matcher.send({ kind: "match", names: joinTexts(names), search }, [], signal);
    return response.kind === "matches" ? response.flags : undefined;
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}
