// Requests of a panel as commands for a shell.

import type { Query } from "../api/types";
import { isoTime, storeTime } from "../url/time";
import type { TransformState } from "../url/view_state";

/** Quotes an argument for a POSIX shell, if it needs that. */
export function shellQuote(argument: string): string {
  // A shell may expand a word that begins with an equals sign.
  if (/^[A-Za-z0-9_./:@%+,-][A-Za-z0-9_./:=@%+,-]*$/.test(argument)) return argument;
  return `'${argument.replace(/'/g, "'\\''")}'`;
}

export interface ServerAddress {
  /** Address of the server with its path prefix, ending with a slash. */
  readonly baseUrl: string;
  readonly tenant: string;
}

/** Returns the option of curl that selects a tenant, after a space; empty for the default tenant. */
export function tenantOption(tenant: string): string {
  return tenant === "" ? "" : ` -H ${shellQuote(`X-Scope-OrgID: ${tenant}`)}`;
}

/** Returns the command that sends a request to the same server as the page does. */
export function curlCommand(method: string, request: unknown, server: ServerAddress): string {
  const url = shellQuote(`${server.baseUrl}${method}`);
  return `curl -sS -H 'Content-Type: application/json'${tenantOption(server.tenant)} \\\n  -d ${shellQuote(JSON.stringify(request))} \\\n  ${url}`;
}

/** Command with what it cannot express. */
export interface AthanorCommand {
  readonly command: string;
  readonly omissions: readonly string[];
}

export interface CommandQuery {
  readonly query: Query;
  readonly transforms: readonly TransformState[];
}

/** Returns flags of a command in their order. Texts that begin with a dash stay values. */
function flags(pairs: readonly (readonly [flag: string, value: string])[]): string {
  return pairs
    .map(([flag, value]) =>
      value.startsWith("-") ? ` ${flag}=${shellQuote(value)}` : ` ${flag} ${shellQuote(value)}`,
    )
    .join("");
}

function selectionFlags(
  { profileType = "", selector = "", start = "0", end = "0" }: Query,
  server: ServerAddress,
): string {
  return flags([
    ["--type", profileType],
    ["--selector", selector === "" ? "{}" : selector],
    ["--since", isoTime(Number(start))],
    ["--until", isoTime(Number(end))],
    ["--url", server.baseUrl.replace(/\/$/, "")],
    ...(server.tenant === "" ? [] : [["--tenant", server.tenant] as const]),
  ]);
}

/** Returns a pattern as the command line reads it: `=NAME` for an exact name, a regular expression otherwise. */
function patternArgument(pattern: string, isRegex: boolean): string {
  if (!isRegex) return `=${pattern}`;
  return pattern.startsWith("=") ? `[=]${pattern.slice(1)}` : pattern;
}

/** Option of a command or a URL, with underscores, and its text. */
export type TransformOption = readonly [name: string, text: string];

/** Returns a transform as the command line and `/athanor/export` read it. */
export function transformOption(transform: TransformState): TransformOption {
  if (transform.pattern === undefined) return ["collapse", "recursion"];
  const pattern = patternArgument(transform.pattern, transform.isRegex);
  switch (transform.action) {
    case "showFrom":
      return ["show_from", pattern];
    case "collapseRecursion":
      return ["collapse", `recursion:${pattern}`];
    case "collapseBelow":
      return ["collapse", `below:${pattern}`];
    default:
      return [transform.action, pattern];
  }
}

export function transformFlags(transforms: readonly TransformState[]): string {
  return flags(
    transforms.map((transform) => {
      const [name, text] = transformOption(transform);
      return [`--${name.replace("_", "-")}`, text] as const;
    }),
  );
}

/** Returns the parts of a query that commands cannot express. */
export function selectorOmissions(query: Query): string[] {
  const selectors = [
    [query.profileIdSelector, "profile ids"],
    [query.spanSelector, "span ids"],
    [query.traceIdSelector, "trace ids"],
  ] as const;
  return selectors.filter(([ids]) => (ids?.length ?? 0) > 0).map(([, name]) => name);
}

/** Returns the command that lists the functions of a table. */
export function topCommand(
  { query, transforms }: CommandQuery,
  rows: number,
  server: ServerAddress,
): AthanorCommand {
  const command = `athanor query top${selectionFlags(query, server)} --limit ${rows}${transformFlags(transforms)}`;
  return { command, omissions: selectorOmissions(query) };
}

/** Returns the command that shows callers and callees of a function. */
export function sandwichCommand(
  { query, transforms }: CommandQuery,
  name: string,
  server: ServerAddress,
): AthanorCommand {
  const sandwich = flags([["--sandwich", name]]);
  const command = `athanor query top${selectionFlags(query, server)}${sandwich}${transformFlags(transforms)}`;
  return { command, omissions: selectorOmissions(query) };
}

/** Returns the command that draws a flame graph. */
export function flamegraphCommand(
  { query, transforms }: CommandQuery,
  maxNodes: number,
  server: ServerAddress,
): AthanorCommand {
  const nodes = flags([["--max-nodes", String(maxNodes)]]);
  const command = `athanor query flamegraph${selectionFlags(query, server)}${nodes}${transformFlags(transforms)}`;
  return { command, omissions: selectorOmissions(query) };
}

export interface SeriesCommandParams {
  readonly query: Query;
  readonly groupBy: readonly string[];
  readonly stepSeconds: number;
  readonly limit: number | undefined;
}

/** Returns the command that shows values over time. */
export function seriesCommand(params: SeriesCommandParams, server: ServerAddress): AthanorCommand {
  const extra = flags([
    ...params.groupBy.map((label) => ["--by", label] as const),
    ["--step", `${params.stepSeconds}s`],
    ...(params.limit === undefined ? [] : [["--limit", String(params.limit)] as const]),
  ]);
  return { command: `athanor query series${selectionFlags(params.query, server)}${extra}`, omissions: [] };
}

/** Formats of `/athanor/export` with their titles. */
export const EXPORT_FORMATS = [
  ["pprof", "pprof"],
  ["folded", "Folded stacks"],
  ["speedscope", "speedscope"],
  ["svg", "Flame graph (SVG)"],
  ["dot", "Call graph (DOT)"],
  ["otlp", "OpenTelemetry"],
] as const;

/** Returns the address of a query as a file. */
export function exportUrl({ query, transforms }: CommandQuery, format: string, baseUrl: string): string {
  const parameters = new URLSearchParams([
    ["query", `${query.profileType ?? ""}${query.selector ?? "{}"}`],
    ["from", storeTime(Number(query.start ?? "0"))],
    ["until", storeTime(Number(query.end ?? "0"))],
    ["format", format],
    ...(query.profileIdSelector ?? []).map((id) => ["profileId", id]),
    ...(query.spanSelector ?? []).map((id) => ["spanId", id]),
    ...(query.traceIdSelector ?? []).map((id) => ["traceId", id]),
    ...transforms.map((transform) => [...transformOption(transform)]),
  ]);
  return `${baseUrl}athanor/export?${parameters}`;
}
