// Query of a component, which ends with the component.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type LiveQuery, liveQuery } from "../api/live_query";

/** Runs a query while the component is mounted. The request is compared by its JSON, `run` may change freely. */
export function useLiveQuery<Request, T>(
  request: Request | undefined,
  run: (request: Request, signal: AbortSignal) => Promise<T>,
): LiveQuery<T> {
  const latestRun = useRef(run);
  latestRun.current = run;
  const { query, current } = useMemo(() => {
    const current = signal<Request | undefined>(undefined);
    const query = liveQuery(
      () => current.value,
      (request: Request, signal) => latestRun.current(request, signal),
    );
    return { query, current };
  }, []);
  const key = JSON.stringify(request);
  useEffect(() => {
    current.value = request;
  }, [key]);
  useEffect(() => query.dispose, [query]);
  return query;
}
