// Total of a function over all its places. It comes from the server: a truncated graph lacks some places.

import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import { token } from "../../api/credentials";
import type { FunctionsRequest } from "../../api/types";
import { exactNameRegex } from "../../graph/search";
import { formatPercent, formatValue } from "../../theme/format";
import { refreshes } from "../../url/clock";
import type { GraphOrigin } from "./graph_origin";

/** Pause of the pointer after which the total is fetched. */
const HOVER_DELAY_MS = 150;
const MAX_CACHED_TOTALS = 500;

const cachedTotals = new Map<string, string>();

interface TotalRequest {
  readonly tenant: string;
  readonly request: FunctionsRequest;
}

function requestOf(name: string | undefined, origin: GraphOrigin | undefined): TotalRequest | undefined {
  const query = origin?.request.query;
  if (origin === undefined || query === undefined || name === undefined || name === "") return undefined;
  const request = { query, filter: { regex: exactNameRegex(name) }, page: { limit: 1 } };
  return { tenant: origin.tenant, request };
}

/** Returns the key of a cached total. Each tenant, token and refresh has its own. */
export function totalKey(request: TotalRequest): string {
  return JSON.stringify([token.value, refreshes.value, request]);
}

/**
 * Returns the total of a function in the query of a graph as text; empty while it is not known. Without a name or a
 * query, nothing is fetched.
 */
export function useFunctionTotal(name: string | undefined, origin: GraphOrigin | undefined): string {
  const request = requestOf(name, origin);
  const key = request === undefined ? "" : totalKey(request);
  const [fetched, setFetched] = useState({ key: "", text: "" });
  useEffect(() => {
    if (request === undefined || cachedTotals.has(key)) return;
    const controller = new AbortController();
    const timer = setTimeout(() => {
      void fetchTotal(request, controller.signal).then((text) => {
        if (text === undefined) return;
        if (cachedTotals.size >= MAX_CACHED_TOTALS) cachedTotals.clear();
        cachedTotals.set(key, text);
        if (!controller.signal.aborted) setFetched({ key, text });
      });
    }, HOVER_DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [key]);
  return cachedTotals.get(key) ?? (fetched.key === key ? fetched.text : "");
}

async function fetchTotal(
  { tenant, request }: TotalRequest,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    const { message } = await call("athanor.v1.ExploreService/Functions", request, { signal, tenant });
    const matched = BigInt(message.matchedTotal ?? "0");
    const share = formatPercent(matched, BigInt(message.total ?? "0"));
    return `${formatValue(matched, message.unit ?? "")} (${share})`;
  } catch {
    // The tooltip shows what the graph knows; the panel reports servers that fail.
    return undefined;
  }
}
