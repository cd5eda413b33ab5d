// Panel around the result of a query: progress, warnings, errors, cancel.
import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { call } from "../api/client";
import type { ApiError } from "../api/errors";
import type { LiveQuery, QueryState } from "../api/live_query";
import type { AnalyzeQueryResponse, Query } from "../api/types";
import { formatValue } from "../theme/format";
import { selectorCheck } from "./shell/selector_bar";
import "./query_panel.css";

/** Time after which a panel shows that its query runs. */
const PROGRESS_DELAY_MS = 1_000;
const TICK_MS = 250;

export interface QueryPanelProps<T> {
  readonly query: LiveQuery<T>;
  /** Query whose cost is shown while the panel waits. */
  readonly estimate?: Query | undefined;
  /** Warnings of the result. */
  readonly warnings?: ((value: T) => readonly string[]) | undefined;
  /** Name of the result, for screen readers. */
  readonly label?: string | undefined;
  readonly children: (value: T) => ComponentChildren;
}

/** Shows the last result while the next one loads, so that the page keeps its layout. */
export function QueryPanel<T>({ query, estimate, warnings, label, children }: QueryPanelProps<T>) {
  const state = query.state.value;
  const value = state.value;
  const texts = value === undefined ? [] : (warnings ?? warningsOf)(value);
  const isLoading = state.kind === "loading";
  return (
    <section class="query-panel" aria-busy={isLoading} aria-label={label}>
      {texts.length > 0 && <WarningBanner warnings={texts} />}
      {state.kind === "failed" && state.error !== undefined && (
        <PanelError error={state.error} retry={() => query.reload()} />
      )}
      {state.kind === "cancelled" && <CancelledBox retry={() => query.reload()} />}
      <div class="query-panel-content">{value !== undefined && children(value)}</div>
      {isLoading && <ProgressBox key={state.startedAt} query={query} state={state} estimate={estimate} />}
    </section>
  );
}

interface PanelErrorProps {
  readonly error: ApiError;
  readonly retry: () => void;
}

/** Shows the error of a query. That of a malformed selector is stated once, at the selector itself. */
function PanelError({ error, retry }: PanelErrorProps) {
  const checked = selectorCheck.state.value;
  const isSelectorMalformed = checked.kind === "failed" && isMalformed(checked.error);
  if (isSelectorMalformed && error.status === 400) {
    return (
      <div class="banner" role="note">
        <div class="banner-text">Correct the selector to see profiles.</div>
      </div>
    );
  }
  return <ErrorBox error={error} retry={isMalformed(error) ? undefined : retry} />;
}

/** Returns whether the server could not parse a text, so that the same query fails again. */
function isMalformed(error: ApiError | undefined): boolean {
  return error?.status === 400 && error.position !== undefined;
}

/** Returns the warnings of a message or a reply. */
function warningsOf(value: unknown): readonly string[] {
  if (typeof value !== "object" || value === null) return [];
  const { warnings } = value as { warnings?: unknown };
  return Array.isArray(warnings) ? warnings.map(String) : [];
}

export function WarningBanner({ warnings }: { warnings: readonly string[] }) {
  return (
    <div class="banner is-warning" role="status">
      <strong>Partial result.</strong>
      <ul>
        {warnings.map((text) => (
          <li key={text}>{text}</li>
        ))}
      </ul>
    </div>
  );
}

/** Shows an error with its trace id. Messages of the server state value, limit and setting. */
export function ErrorBox({ error, retry }: { error: ApiError; retry?: (() => void) | undefined }) {
  return (
    <div class="banner is-error" role="alert">
      <div class="banner-text">
        <strong>{errorTitle(error)}</strong> <span class="banner-message">{error.message}</span>
        {error.traceId !== undefined && (
          <span class="banner-trace">
            {" "}
            trace <code>{error.traceId}</code>
          </span>
        )}
      </div>
      {retry !== undefined && (
        <button type="button" class="button" onClick={retry}>
          Retry
        </button>
      )}
    </div>
  );
}

function errorTitle(error: ApiError): string {
  if (error.isUnreachable()) return "Server unreachable:";
  if (error.status === 401) return "Not signed in:";
  if (error.status === 400) return "Invalid request:";
  if (error.status === 429 || error.status === 413) return "Over a limit:";
  if (error.status === 503) return "Unavailable:";
  if (error.status === 504) return "Timed out:";
  return "Failed:";
}

function CancelledBox({ retry }: { retry: () => void }) {
  return (
    <div class="banner" role="status">
      <div class="banner-text">Canceled.</div>
      <button type="button" class="button" onClick={retry}>
        Run
      </button>
    </div>
  );
}

interface ProgressBoxProps {
  readonly query: Pick<LiveQuery<unknown>, "cancel" | "state">;
  readonly state: QueryState<unknown>;
  readonly estimate: Query | undefined;
}

function ProgressBox({ query, state, estimate }: ProgressBoxProps) {
  const currentTime = useSignal(Date.now());
  const costText = useSignal("");
  useEffect(() => {
    const timer = setInterval(() => {
      currentTime.value = Date.now();
    }, TICK_MS);
    return () => clearInterval(timer);
  }, [currentTime]);
  const isVisible = useComputed(() => currentTime.value - state.startedAt >= PROGRESS_DELAY_MS);
  useSignalEffect(() => {
    if (!isVisible.value || estimate === undefined) return;
    const controller = new AbortController();
    void describeCost(estimate, controller.signal).then((text) => {
      costText.value = text;
    });
    return () => controller.abort();
  });
  const { retryAt, error } = state;
  if (retryAt === undefined && !isVisible.value) return null;
  const seconds = Math.floor((currentTime.value - state.startedAt) / 1_000);
  return (
    <div class="query-progress">
      <div class="query-progress-bar" />
      <div class="query-progress-box" role="status">
        {retryAt === undefined ? (
          <span>Running for {seconds} s</span>
        ) : (
          <span>
            {error?.message}. Retries in {Math.max(0, Math.ceil((retryAt - currentTime.value) / 1_000))} s
          </span>
        )}
        {costText.value !== "" && <span class="query-progress-cost">{costText.value}</span>}
        <button type="button" class="button" onClick={() => query.cancel()}>
          Cancel
        </button>
      </div>
    </div>
  );
}

/** Returns what a query reads, or nothing if that cannot be found out. */
async function describeCost(query: Query, signal: AbortSignal): Promise<string> {
  const typed = `${query.profileType ?? ""}${query.selector ?? "{}"}`;
  try {
    const reply = await call(
      "querier.v1.QuerierService/AnalyzeQuery",
      { query: typed, start: query.start, end: query.end },
      { signal },
    );
    return costSentence(reply.message);
  } catch {
    return "";
  }
}

/** Writes the sums of all components. */
export function costSentence({ queryScopes = [] }: AnalyzeQueryResponse): string {
  let profiles = 0n;
  let blocks = 0n;
  let bytes = 0n;
  for (const scope of queryScopes) {
    profiles += BigInt(scope.profileCount ?? "0");
    blocks += BigInt(scope.blockCount ?? "0");
    bytes +=
      BigInt(scope.indexBytes ?? "0") + BigInt(scope.profileBytes ?? "0") + BigInt(scope.symbolBytes ?? "0");
  }
  return `It reads ${formatValue(profiles, "count")} profiles in ${formatValue(blocks, "count")} blocks, ${formatValue(bytes, "bytes")}.`;
}
