// Current view. The browser's address is its store, and its history is the undo list.
import { batch, type ReadonlySignal, signal } from "@preact/signals";
import { advanceStaleClock } from "./clock";
import { notify } from "./notices";
import { decodeLocation } from "./pyroscope_links";
import { fleetChange, profilesKeyOf } from "./query_details";
import { setCurrentTenant } from "./tenant";
import { encodeView } from "./view_codec";
import type { ViewState } from "./view_state";

/** Own entry of the browser's history. */
interface HistoryEntry {
  /** Number of entries of this page before it. */
  readonly index: number;
  /** Fields that typing changes in this entry; empty if it was pushed. */
  readonly typedFields: string;
}

// Browsers ignore more than about 100 changes of the address within 30 s.
const ADDRESS_DELAY_MS = 300;

const first = decodeLocation(location);
const currentView = signal<ViewState>(first.state);
setCurrentTenant(first.state.tenant);
let entry: HistoryEntry = readEntry(history.state);
let pendingAddress: ReturnType<typeof setTimeout> | undefined;

/** Fields whose change begins another query, which then sees the current time. */
const QUERY_FIELDS: readonly (keyof ViewState)[] = [
  "page",
  "from",
  "until",
  "profileType",
  "selector",
  "tenant",
];

/** Current view. */
export const view: ReadonlySignal<ViewState> = currentView;

/** Returns the link of the current view with a change, relative to the page. */
export function hrefOf(change: Partial<ViewState>): string {
  return `./${encodeView(changedView(currentView.value, change))}`;
}

/** Returns a view after a change. A zoomed range is a share of one graph, so that another path or graph ends it. */
function changedView(state: ViewState, change: Partial<ViewState>): ViewState {
  const next = { ...state, ...change };
  const keepsRange = change.zoomPath === undefined && profilesKeyOf(next) === profilesKeyOf(state);
  return { ...next, zoomRange: change.zoomRange ?? (keepsRange ? state.zoomRange : "") };
}

/**
 * Changes the view. "push" adds an entry to the history. "typing" adds one for the first of successive changes of the
 * same fields, and replaces it with each further one.
 */
export function navigate(change: Partial<ViewState>, mode: "push" | "typing" = "push"): void {
  const next = changedView(currentView.peek(), copyTexts(change));
  const typedFields = mode === "typing" ? Object.keys(change).sort().join() : "";
  if (encodeView(next) === encodeView(currentView.peek())) return;
  const replaces = typedFields !== "" && typedFields === entry.typedFields;
  if (!replaces) {
    flushAddress();
    // The entry comes first: an effect of the new view may complete it, and must not change the entry before.
    entry = { index: entry.index + 1, typedFields };
    history.pushState(entry, "", `./${encodeView(next)}`);
  }
  batch(() => {
    if (QUERY_FIELDS.some((field) => field in change)) advanceStaleClock();
    setView(next);
  });
  if (replaces) scheduleAddress();
}

/** Copies the texts of a change. Names of frames are parts of the text of a graph, which the view would keep in memory. */
function copyTexts(change: Partial<ViewState>): Partial<ViewState> {
  // JSON leaves out fields that the change sets to undefined.
  return { ...change, ...(JSON.parse(JSON.stringify(change)) as Partial<ViewState>) };
}

function setView(next: ViewState): void {
  batch(() => {
    setCurrentTenant(next.tenant);
    currentView.value = next;
  });
}

/** Changes the view without a step in the history. For values that the page fills in by itself. */
export function replaceView(change: Partial<ViewState>): void {
  setView({ ...currentView.peek(), ...change });
  clearTimeout(pendingAddress);
  pendingAddress = undefined;
  history.replaceState(entry, "", `./${encodeView(currentView.peek())}`);
}

/** Undoes the last step. Opens the fleet if the current view is the first. */
export function goBack(): void {
  if (entry.index > 0) history.back();
  else navigate(fleetChange(currentView.peek()));
}

function scheduleAddress(): void {
  clearTimeout(pendingAddress);
  pendingAddress = setTimeout(flushAddress, ADDRESS_DELAY_MS);
}

function flushAddress(): void {
  if (pendingAddress === undefined) return;
  clearTimeout(pendingAddress);
  pendingAddress = undefined;
  history.replaceState(entry, "", `./${encodeView(currentView.peek())}`);
}

function readEntry(state: unknown): HistoryEntry {
  const { index, typedFields } = (state ?? {}) as Partial<HistoryEntry>;
  return {
    index: typeof index === "number" ? index : 0,
    typedFields: typeof typedFields === "string" ? typedFields : "",
  };
}

function openLocation(): void {
  clearTimeout(pendingAddress);
  pendingAddress = undefined;
  entry = readEntry(history.state);
  const before = currentView.peek();
  const next = decodeLocation(location).state;
  batch(() => {
    if (QUERY_FIELDS.some((field) => next[field] !== before[field])) advanceStaleClock();
    setView(next);
  });
}

/** Begins to follow the browser's history, and writes the address of the first view in its usual form. */
export function startHistory(): void {
  for (const text of first.notices) notify(text, "warning");
  history.replaceState(entry, "", `./${encodeView(first.state)}`);
  addEventListener("popstate", openLocation);
  addEventListener("pagehide", flushAddress);
}
