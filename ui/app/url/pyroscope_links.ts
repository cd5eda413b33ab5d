// Links of Pyroscope, which older dashboards and chats contain.
import { escapeRegex, formatMatcher } from "./selector";
import { storeRange } from "./time";
import { type DecodedView, decodeView, encodeView } from "./view_codec";
import { DEFAULT_VIEW, type ViewState } from "./view_state";

/** Profile types by the suffix of an application's name. */
const SUFFIX_TYPES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    cpu: "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
    itimer: "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
    wall: "wall:wall:nanoseconds:wall:nanoseconds",
    alloc_objects: "memory:alloc_objects:count:space:bytes",
    alloc_space: "memory:alloc_space:bytes:space:bytes",
    inuse_objects: "memory:inuse_objects:count:space:bytes",
    inuse_space: "memory:inuse_space:bytes:space:bytes",
    alloc_in_new_tlab_objects: "memory:alloc_in_new_tlab_objects:count:space:bytes",
    alloc_in_new_tlab_bytes: "memory:alloc_in_new_tlab_bytes:bytes:space:bytes",
    alloc_outside_tlab_objects: "memory:alloc_outside_tlab_objects:count:space:bytes",
    alloc_outside_tlab_bytes: "memory:alloc_outside_tlab_bytes:bytes:space:bytes",
    live: "memory:live:count:objects:count",
    goroutines: "goroutines:goroutine:count:goroutine:count",
    mutex_count: "mutex:contentions:count:mutex:count",
    mutex_duration: "mutex:delay:nanoseconds:mutex:count",
    block_count: "block:contentions:count:block:count",
    block_duration: "block:delay:nanoseconds:block:count",
    lock_count: "block:contentions:count:block:count",
    lock_duration: "block:delay:nanoseconds:block:count",
    exceptions: "exceptions:samples:count::",
  }),
);

const EQUIVALENT_TYPES: ReadonlyMap<string, readonly string[]> = new Map(
  Object.entries({
    "goroutines:goroutine:count:goroutine:count": ["goroutine:goroutine:count", "goroutine:goroutines:count"],
    "process_cpu:cpu:nanoseconds:cpu:nanoseconds": ["process_cpu:samples:count"],
    "exceptions:samples:count::": ["exceptions:exception:count"],
  }),
);

const PAGE_PATHS = /\/(explore|comparison|comparison-diff|diff|tracing)\/?$/;

/** Address of a page, as `location` has it. */
export interface PageAddress {
  readonly pathname: string;
  readonly search: string;
}

/** Returns the view of an address, which may be a link of Pyroscope. */
export function decodeLocation(address: PageAddress): DecodedView {
  const parameters = new URLSearchParams(address.search);
  const path = PAGE_PATHS.exec(address.pathname)?.[1];
  const isOld =
    path !== undefined || ["query", "leftQuery", "rightQuery"].some((name) => parameters.has(name));
  return isOld ? decodePyroscopeLink(parameters, path) : decodeView(address.search);
}

function decodePyroscopeLink(parameters: URLSearchParams, path: string | undefined): DecodedView {
  const notices: string[] = [];
  const isComparison = path?.startsWith("comparison") || path === "diff" || parameters.has("leftQuery");
  const side = isComparison ? "left" : "";
  const query = parameters.get(side === "" ? "query" : "leftQuery") ?? parameters.get("query") ?? "";
  const read = (name: string): string | null =>
    parameters.get(side + name[0]?.toUpperCase() + name.slice(1)) ?? parameters.get(name);
  if (isComparison)
    notices.push("This server does not compare two queries yet. The page shows the left side.");
  const parsed = parseOldQuery(query);
  if (parsed === undefined)
    notices.push(`The link's query is no application and no profile type: ${query.slice(0, 80)}`);
  else if (parsed.untypedName !== undefined)
    notices.push(
      `The link's application ${parsed.untypedName.slice(0, 80)} names no known profile type. The page shows the first one.`,
    );
  const times = storeRange(
    read("from") || DEFAULT_VIEW.from,
    // Links of Grafana call it so.
    read("until") || read("to") || DEFAULT_VIEW.until,
    Date.now(),
  );
  for (const [name, text] of Object.entries(times)) {
    if (text === undefined)
      notices.push(`The link's time ${name} cannot be read: ${read(name)?.slice(0, 80)}`);
  }
  const tenant = parameters.get("tenant") ?? parameters.get("tenantID") ?? "";
  const state: ViewState = {
    ...DEFAULT_VIEW,
    page: parsed === undefined || query === "" ? "fleet" : "explore",
    ...(parsed === undefined ? {} : { profileType: parsed.profileType, selector: parsed.selector }),
    from: times.from ?? DEFAULT_VIEW.from,
    until: times.until ?? DEFAULT_VIEW.until,
    groupBy: parameters.get("groupBy") ?? "",
    tenant,
  };
  // A state that comes from a link has only what links can have.
  return { state: decodeView(encodeView(state)).state, notices };
}

/** Selection of an old query. */
export interface OldQuery extends Pick<ViewState, "profileType" | "selector"> {
  /** Name of the application if its suffix is no known profile type. */
  readonly untypedName?: string;
}

/** Text without spaces and without the characters of matchers. */
const APPLICATION_NAME = /^[^\s"'`=!~,{}]+$/;

/** Parses `app.cpu{…}` or `name:type:unit:type:unit{…}`. The type is empty if the name of an application has none. */
export function parseOldQuery(query: string): OldQuery | undefined {
  const brace = query.indexOf("{");
  const name = (brace < 0 ? query : query.slice(0, brace)).trim();
  const matchers =
    brace < 0
      ? ""
      : query
          .slice(brace + 1)
          .replace(/\}\s*$/, "")
          .trim();
  if (name.split(":").length === 5) return { profileType: name, selector: `{${matchers}}` };
  if (name === "")
    return query.trim() === "" || brace >= 0 ? { profileType: "", selector: `{${matchers}}` } : undefined;
  const dot = name.lastIndexOf(".");
  const suffix = dot < 0 ? "cpu" : name.slice(dot + 1);
  const profileType = SUFFIX_TYPES.get(suffix);
  if (profileType === undefined && !APPLICATION_NAME.test(name)) return undefined;
  const services = serviceMatcher(name, dot < 0 ? name : name.slice(0, dot));
  const selector = `{${services}${matchers === "" ? "" : `, ${matchers}`}}`;
  return profileType === undefined
    ? { profileType: "", selector, untypedName: name }
    : { profileType, selector };
}

// Text that was uploaded as `shop.cpu` has the service `shop`, a pprof has `shop.cpu`.
function serviceMatcher(name: string, app: string): string {
  if (app === name) return formatMatcher({ name: "service_name", operator: "=", value: app });
  const pattern = [app, name].map(escapeRegex).join("|");
  return formatMatcher({ name: "service_name", operator: "=~", value: pattern });
}

/** Returns the type of a list that a link means. Old links name no period, and some types have several names. */
export function findProfileType(wanted: string, types: readonly string[]): string | undefined {
  if (types.includes(wanted)) return wanted;
  const names = [wanted, ...(EQUIVALENT_TYPES.get(wanted) ?? [])];
  const withoutPeriod = names.map((name) => `${name.split(":").slice(0, 3).join(":")}:`);
  return withoutPeriod.flatMap((prefix) => types.filter((type) => type.startsWith(prefix)))[0];
}
