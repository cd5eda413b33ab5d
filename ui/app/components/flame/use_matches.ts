// Names of a graph that the search matches.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Graph } from "../../graph/graph";
import { matchNames, parseSearch } from "../../graph/search";
import { joinTexts } from "../../graph/transfer";
import { notify } from "../../url/notices";
import { WorkerClient } from "./worker_client";

/** Time after which a regular expression counts as too slow. */
const REGEX_TIMEOUT_MS = 1_000;
const NO_MATCHES: NameMatches = { flags: undefined, search: undefined };

/** Matches of a search among the names of a graph. */
export interface NameMatches {
  /** One flag a name, or undefined without a search. */
  readonly flags: Uint8Array | undefined;
  /** Search of the flags. Those of a regular expression follow later. Undefined before the first ones. */
  readonly search: string | undefined;
}

/** Returns the matches of a search among the names of a graph. A worker matches regular expressions. */
export function useMatches(graph: Graph, search: string): NameMatches {
  const { names } = graph;
  const [state, setState] = useState<NameMatches & { readonly names: readonly string[] }>();
  // Each graph has its own worker, so that stopping one pattern stops no other.
  const matcher = useMemo(() => new WorkerClient(), []);
  useEffect(() => () => matcher.stop("closed"), [matcher]);
  const pattern = parseSearch(search);
  const isRegex = pattern.kind === "regex";
  useEffect(() => {
    if (!isRegex) {
      setState({ names, search, flags: matchNames(names, pattern) });
      return;
    }
    const controller = new AbortController();
    void matchInWorker(matcher, names, search, controller.signal).then((flags) => {
      if (!controller.signal.aborted) setState({ names, search, flags });
    });
    return () => controller.abort();
  }, [names, search, isRegex]);
  return state?.names === names ? state : NO_MATCHES;
}

/**
 * Matches a regular expression. It may take exponential time in JavaScript, which only a worker survives. The worker
 * is stopped when the time is over or the pattern is no longer wanted.
 */
export async function matchInWorker(
  matcher: WorkerClient,
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
  const stop = () => matcher.stop("aborted");
  signal.addEventListener("abort", stop, { once: true });
  try {
    const response = await matcher.send({ kind: "match", names: joinTexts(names), search }, [], signal);
    return response.kind === "matches" ? response.flags : undefined;
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}
