// Total of a function over all its places. It comes from the server: a truncated graph lacks some places.

import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import { token } from "../../api/credentials";
import { toApiError } from "../../api/errors";
import type { FunctionsRequest } from "../../api/types";
import { exactNameRegex } from "../../graph/search";
import { formatPercent, formatValue } from "../../theme/format";
import { refreshes } from "../../url/clock";
import type { GraphOrigin } from "./graph_origin";

/** Pause of the pointer after which the total is fetched. */
const HOVER_DELAY_MS = 150;
const MAX_CACHED_TOTALS = 500;

/** Total of a function as text, once it is known. */
export type FunctionTotal =
  | { readonly kind: "none" | "loading" }
  | { readonly kind: "known" | "failed"; readonly text: string };

const cachedTotals = new Map<string, FunctionTotal>();

export interface TotalRequest {
  readonly tenant: string;
  readonly request: FunctionsRequest;
}

/** Returns the request for the total of a function, or undefined if there is nothing to ask for. */
export function totalRequestOf(
  name: string | undefined,
  origin: GraphOrigin | undefined,
): TotalRequest | undefined {
  const query = origin?.request.query;
  if (origin === undefined || query === undefined || name === undefined) return undefined;
  const request = { query, filter: { regex: exactNameRegex(name) }, page: { limit: 1 } };
  return { tenant: origin.tenant, request };
}

/** Returns the key of a cached total. Each tenant, token and refresh has its own. */
export function totalKey(request: TotalRequest): string {
  return JSON.stringify([token.value, refreshes.value, request]);
}

/** Fetches the total of a function in the query of a graph. Without a name or a query, nothing is fetched. */
export function useFunctionTotal(name: string | undefined, origin: GraphOrigin | undefined): FunctionTotal {
  const request = totalRequestOf(name, origin);
  const key = request === undefined ? "" : totalKey(request);
  const [fetched, setFetched] = useState<{ key: string; total: FunctionTotal }>();
  useEffect(() => {
    if (request === undefined || cachedTotals.has(key)) return;
    const controller = new AbortController();
    const timer = setTimeout(() => {
      void fetchTotal(request, controller.signal).then((total) => {
        if (total.kind === "known") {
          if (cachedTotals.size >= MAX_CACHED_TOTALS) cachedTotals.clear();
          cachedTotals.set(key, total);
        }
        if (!controller.signal.aborted) setFetched({ key, total });
      });
    }, HOVER_DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [key]);
  if (request === undefined) return { kind: "none" };
  return cachedTotals.get(key) ?? (fetched?.key === key ? fetched.total : { kind: "loading" });
}

/** Fetches a total. Returns errors as text. */
export async function fetchTotal(
  { tenant, request }: TotalRequest,
  signal: AbortSignal,
): Promise<FunctionTotal> {
  try {
    const { message } = await call("athanor.v1.ExploreService/Functions", request, { signal, tenant });
    const matched = BigInt(message.matchedTotal ?? "0");
    const share = formatPercent(matched, BigInt(message.total ?? "0"));
    return { kind: "known", text: `${formatValue(matched, message.unit ?? "")} (${share})` };
  } catch (error) {
    return { kind: "failed", text: toApiError(error).message };
  }
}
