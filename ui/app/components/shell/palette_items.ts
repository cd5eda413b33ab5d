// Entries of the command palette: pages, actions, services, functions.
import { call } from "../../api/client";
import { serverUrl } from "../../api/server_state";
import type { FunctionFilter } from "../../api/types";
import { NO_NAME, showName } from "../../graph/names";
import { theme } from "../../theme/theme";
import { exploreChange, fleetChange } from "../../url/query_details";
import { queryOf, timeRangeOf } from "../../url/query_of";
import { escapeRegex, formatSelector, type LabelMatcher, withLabel } from "../../url/selector";
import { navigate, view } from "../../url/store";
import type { ViewName } from "../../url/view_state";
import { isHelpOpen } from "../help";
import { isAccessOpen } from "./access_dialog";
import { copyLink } from "./copy_link";
import { PLAIN_PAGES } from "./help_menu";

export type PaletteKind = "Page" | "View" | "Action" | "Service" | "Function";

export interface PaletteItem {
  readonly kind: PaletteKind;
  readonly title: string;
  readonly run: () => void;
}

const MAX_SERVICES = 50;
const MAX_FUNCTIONS = 20;
/** Shorter texts match too many functions to be useful. */
const MIN_FUNCTION_CHARS = 2;

const VIEW_TITLES: readonly (readonly [name: ViewName, title: string])[] = [
  ["flame", "Flame graph"],
  ["icicle", "Icicle graph"],
  ["table", "Table of functions"],
  ["tree", "Tree"],
  ["sandwich", "Sandwich"],
];

/** Returns pages of the page itself and of the server. */
export function pageItems(): readonly PaletteItem[] {
  const own: readonly PaletteItem[] = [
    { kind: "Page", title: "Fleet", run: () => navigate(fleetChange(view.peek())) },
    { kind: "Page", title: "Explore", run: () => navigate({ page: "explore" }) },
    { kind: "Page", title: "Send profiles", run: () => navigate({ page: "start" }) },
  ];
  const plain = PLAIN_PAGES.map(
    ([path, title]): PaletteItem => ({ kind: "Page", title, run: () => location.assign(serverUrl(path)) }),
  );
  return [...own, ...plain];
}

/** Returns views and actions. */
export function actionItems(): readonly PaletteItem[] {
  const views = VIEW_TITLES.map(
    ([name, title]): PaletteItem => ({
      kind: "View",
      title,
      run: () => navigate({ page: "explore", views: [name] }),
    }),
  );
  const setTheme = (name: "system" | "light" | "dark") => () => {
    theme.value = name;
  };
  const isUtc = view.peek().timeZone === "utc";
  return [
    ...views,
    { kind: "Action", title: "Copy link with fixed times", run: () => copyLink(false) },
    { kind: "Action", title: "Copy link with relative times", run: () => copyLink(true) },
    { kind: "Action", title: "Light theme", run: setTheme("light") },
    { kind: "Action", title: "Dark theme", run: setTheme("dark") },
    { kind: "Action", title: "Theme of the system", run: setTheme("system") },
    {
      kind: "Action",
      title: isUtc ? "Times in local time" : "Times in UTC",
      run: () => navigate({ timeZone: isUtc ? "local" : "utc" }),
    },
    { kind: "Action", title: "Tenant and token…", run: () => (isAccessOpen.value = true) },
    { kind: "Action", title: "Keys", run: () => (isHelpOpen.value = true) },
  ];
}

/** Returns services whose name contains all words of a text. */
export async function serviceItems(text: string, signal: AbortSignal): Promise<readonly PaletteItem[]> {
  const { start, end } = timeRangeOf(view.peek());
  const matchers = wordsOf(text).map(
    (word): LabelMatcher => ({
      name: "service_name",
      operator: "=~",
      value: `(?i).*${escapeRegex(word)}.*`,
    }),
  );
  const { message } = await call(
    "querier.v1.QuerierService/LabelValues",
    {
      name: "service_name",
      matchers: matchers.length === 0 ? [] : [formatSelector(matchers)],
      limit: String(MAX_SERVICES),
      start: String(start),
      end: String(end),
    },
    { signal },
  );
  return (message.names ?? []).map((name) => ({
    kind: "Service",
    title: name,
    run: () => openService(name),
  }));
}

export function openService(name: string): void {
  navigate(exploreChange(withLabel("{}", { name: "service_name", operator: "=", value: name })));
}

/** Returns the filter of functions whose name contains a text, as it is displayed. */
export function paletteFilter(text: string): FunctionFilter {
  if (!NO_NAME.includes(text.toLowerCase())) return { substring: text };
  return { regex: `^$|${escapeRegex(text)}` };
}

/** Returns functions of the current query whose name contains a text, the heaviest first. */
export async function functionItems(text: string, signal: AbortSignal): Promise<readonly PaletteItem[]> {
  const query = queryOf(view.peek());
  if (query === undefined || text.length < MIN_FUNCTION_CHARS) return [];
  const { message } = await call(
    "athanor.v1.ExploreService/Functions",
    { query, filter: paletteFilter(text), order: "FUNCTION_ORDER_TOTAL", page: { limit: MAX_FUNCTIONS } },
    { signal },
  );
  return (message.rows ?? []).map(({ name = "" }) => ({
    kind: "Function",
    title: showName(name),
    run: () => navigate({ page: "explore", views: ["sandwich"], sandwichFunction: name }),
  }));
}

/** Returns the items whose title contains all words of a text. */
export function filterItems(items: readonly PaletteItem[], text: string): readonly PaletteItem[] {
  const words = wordsOf(text);
  return items.filter(({ title }) => words.every((word) => title.toLowerCase().includes(word)));
}

function wordsOf(text: string): readonly string[] {
  return text
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
}
