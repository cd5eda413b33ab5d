// Query that follows signals: a newer request aborts the older one, here and on the server.
import { effect, type ReadonlySignal, type Signal, signal, untracked } from "@preact/signals";
import { refreshes } from "../url/clock";
import { currentTenant } from "../url/tenant";
import { token } from "./credentials";
import { type ApiError, toApiError } from "./errors";
import { recoveries } from "./server_state";

export interface QueryState<T> {
  readonly kind: "idle" | "loading" | "done" | "failed" | "cancelled";
  /** Last result. While the query is loading it may be that of another request. */
  readonly value?: T | undefined;
  /** Number of the request of `value`. A refresh keeps the number, although its times move. */
  readonly valueRequest?: number | undefined;
  /** Number of the running request. */
  readonly runningRequest?: number | undefined;
  /** Error of the last attempt. */
  readonly error?: ApiError | undefined;
  /** Milliseconds since 1970 at which the request began. */
  readonly startedAt: number;
  /** Time of the next attempt, if the server asked for a pause. */
  readonly retryAt?: number | undefined;
}

export interface LiveQuery<T> {
  readonly state: ReadonlySignal<QueryState<T>>;
  /** Aborts the running request. */
  cancel(): void;
  /** Runs the current request. */
  reload(): void;
  /** Aborts the running request and stops following signals. */
  dispose(): void;
}

/** Result of a query without a request. Its signal is not aborted, because a table loads its later pages with it. */
interface ClosedQuery<T> {
  readonly key: string | undefined;
  readonly result: QueryState<T>;
  readonly controller: AbortController | undefined;
}

const MAX_RETRIES = 6;
const FIRST_RETRY_SECONDS = 1;
const MAX_RETRY_SECONDS = 30;

/**
 * Creates a query. `request` is read in an effect; without a request the query is idle. It keeps its last result for the
 * case that the same request is the next one: a view that closes and opens again is drawn at once.
 */
export function liveQuery<Request, T>(
  request: () => Request | undefined,
  run: (request: Request, signal: AbortSignal) => Promise<T>,
): LiveQuery<T> {
  const state = signal<QueryState<T>>({ kind: "idle", startedAt: 0 });
  const reloads = signal(0);
  let running: AbortController | undefined;
  let requestKey: string | undefined;
  let content: string | undefined;
  let contentNumber = 0;
  let refreshNumber = refreshes.peek();
  let reader = readerKey();
  let closed: ClosedQuery<T> | undefined;
  const dropClosed = () => {
    closed?.controller?.abort();
    closed = undefined;
  };
  const start = (current: Request | undefined) => {
    running?.abort();
    running = undefined;
    if (current === undefined) {
      state.value = { kind: "idle", startedAt: 0 };
      return;
    }
    const controller = new AbortController();
    running = controller;
    void runAttempts(state, contentNumber, () => run(current, controller.signal), controller.signal);
  };
  const stopRequests = effect(() => {
    const current = request();
    const text = JSON.stringify(current);
    const refresh = refreshes.value;
    const key = `${reloads.value} ${refresh} ${readerKey()} ${text}`;
    if (key === requestKey) return;
    const before = { key: requestKey, result: state.peek() };
    requestKey = key;
    if (content !== text && refreshNumber === refresh) contentNumber++;
    content = text;
    refreshNumber = refresh;
    if (reader !== readerKey()) state.value = { kind: "idle", startedAt: 0 };
    reader = readerKey();
    if (current === undefined && before.result.kind === "done") {
      closed = { ...before, controller: running };
      running = undefined;
    } else if (current !== undefined && closed?.key === key) {
      state.value = { ...closed.result, valueRequest: contentNumber };
      running = closed.controller;
      closed = undefined;
      return;
    } else dropClosed();
    untracked(() => start(current));
  });
  const reload = () => {
    reloads.value = reloads.peek() + 1;
  };
  const stopRecoveries = reloadAfterRecovery(state, reload);
  return {
    state,
    reload,
    cancel: () => {
      running?.abort();
      const { kind, startedAt } = state.peek();
      if (kind === "loading")
        state.value = { kind: "cancelled", ...keptValue(state.peek(), contentNumber), startedAt };
    },
    dispose: () => {
      stopRequests();
      stopRecoveries();
      running?.abort();
      dropClosed();
    },
  };
}

// Results of one tenant or token are never shown to another.
function readerKey(): string {
  return JSON.stringify([currentTenant.value, token.value]);
}

// A proxy before a dead server responds with any status from 500.
function mayHaveRecovered(error: ApiError): boolean {
  return error.isUnreachable() || error.status === 401 || error.status >= 500;
}

// A query that failed for lack of a server runs when it returns.
function reloadAfterRecovery<T>(state: ReadonlySignal<QueryState<T>>, reload: () => void): () => void {
  let isFirst = true;
  return effect(() => {
    recoveries.value;
    const { kind, error } = state.peek();
    if (!isFirst && kind === "failed" && error !== undefined && mayHaveRecovered(error)) reload();
    isFirst = false;
  });
}

type StoredValue<T> = Pick<QueryState<T>, "value" | "valueRequest">;

/** Returns the value of a request. A value of another one must not remain below its error. */
function keptValue<T>({ value, valueRequest }: QueryState<T>, requestNumber: number): StoredValue<T> {
  return valueRequest === requestNumber ? { value, valueRequest } : {};
}

async function runAttempts<T>(
  state: Signal<QueryState<T>>,
  requestNumber: number,
  run: () => Promise<T>,
  signal: AbortSignal,
): Promise<void> {
  const startedAt = Date.now();
  const { value: lastValue, valueRequest } = state.peek();
  const loading = {
    kind: "loading",
    value: lastValue,
    valueRequest,
    runningRequest: requestNumber,
    startedAt,
  } as const;
  state.value = loading;
  for (let attempt = 0; ; attempt++) {
    try {
      const value = await run();
      if (!signal.aborted) state.value = { kind: "done", value, valueRequest: requestNumber, startedAt };
      return;
    } catch (thrown) {
      if (signal.aborted) return;
      const error = toApiError(thrown);
      if (!error.isRetryable() || attempt >= MAX_RETRIES) {
        state.value = { kind: "failed", ...keptValue(state.peek(), requestNumber), error, startedAt };
        return;
      }
      const seconds =
        error.retryAfterSeconds ?? Math.min(FIRST_RETRY_SECONDS * 2 ** attempt, MAX_RETRY_SECONDS);
      state.value = { ...loading, error, retryAt: Date.now() + seconds * 1_000 };
      await pause(seconds * 1_000, signal);
      if (signal.aborted) return;
      state.value = loading;
    }
  }
}

/** Waits for some time, or until the signal aborts. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", finish);
      resolve();
    };
    const timer = setTimeout(finish, ms);
    signal.addEventListener("abort", finish);
  });
}
