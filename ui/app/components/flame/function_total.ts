// Total of a function over all its places. It comes from the server: a truncated graph lacks some places.

import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { FunctionsRequest } from "../../api/types";
import { exactNameRegex } from "../../graph/search";
import { formatPercent, formatValue } from "../../theme/format";
import { queryOf } from "../../url/query_of";
import { view } from "../../url/store";

/** Pause of the pointer after which the total is fetched. */
const HOVER_DELAY_MS = 150;
const MAX_CACHED_TOTALS = 500;

const cachedTotals = new Map<string, string>();

function requestOf(name: string): FunctionsRequest | undefined {
  const query = queryOf(view.peek());
  if (query === undefined || name === "") return undefined;
  return { query, filter: { regex: exactNameRegex(name) }, page: { limit: 1 } };
}

/** Returns the total of a function as text; empty while it is not known. Without a name, nothing is fetched. */
export function useFunctionTotal(name: string | undefined): string {
  const request = name === undefined ? undefined : requestOf(name);
  const key = request === undefined ? "" : JSON.stringify(request);
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

async function fetchTotal(request: FunctionsRequest, signal: AbortSignal): Promise<string | undefined> {
  try {
    const { message } = await call("athanor.v1.ExploreService/Functions", request, { signal });
    const matched = BigInt(message.matchedTotal ?? "0");
    const share = formatPercent(matched, BigInt(message.total ?? "0"));
    return `${formatValue(matched, message.unit ?? "")} (${share})`;
  } catch {
    // The tooltip shows what the graph knows; the panel reports servers that fail.
    return undefined;
  }
}
