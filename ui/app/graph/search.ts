// Search in the names of a graph: a part of the name, or a regular expression between slashes.

import type { Graph } from "./graph";

/** Search as the user typed it. Text is exact in its letter case, as in the filter of `Functions`. */
export type SearchPattern =
  | { readonly kind: "empty" }
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "regex"; readonly source: string; readonly regex: RegExp }
  | { readonly kind: "invalid"; readonly source: string; readonly message: string };

/** Longest part of a name that a regular expression sees. */
const MAX_REGEX_CHARACTERS = 10_240;
const INLINE_FLAGS = /^\(\?([ims]+)\)/;

export function parseSearch(search: string): SearchPattern {
  if (search === "") return { kind: "empty" };
  if (search.length < 3 || !search.startsWith("/") || !search.endsWith("/"))
    return { kind: "text", text: search };
  const source = search.slice(1, -1);
  // The server's dialect has flags at the beginning of the pattern, JavaScript's beside it.
  const inline = INLINE_FLAGS.exec(source);
  const flags = inline?.[1] ?? "";
  try {
    const regex = new RegExp(source.slice(inline?.[0].length ?? 0), `u${[...new Set(flags)].join("")}`);
    return { kind: "regex", source, regex };
  } catch (error) {
    return { kind: "invalid", source, message: error instanceof Error ? error.message : String(error) };
  }
}

/** Returns the search for a name: its text, or a regular expression if the text alone would mean something else. */
export function searchOfName(name: string): string {
  return parseSearch(name).kind === "text" ? name : `/${exactNameRegex(name)}/`;
}

/** Returns one flag a name, 1 for a match, or undefined if nothing is searched for. */
export function matchNames(names: readonly string[], pattern: SearchPattern): Uint8Array | undefined {
  if (pattern.kind === "empty" || pattern.kind === "invalid") return undefined;
  const flags = new Uint8Array(names.length);
  for (let index = 0; index < names.length; index++) {
    const name = names[index] as string;
    const isMatch =
      pattern.kind === "text"
        ? name.includes(pattern.text)
        : pattern.regex.test(name.length > MAX_REGEX_CHARACTERS ? name.slice(0, MAX_REGEX_CHARACTERS) : name);
    if (isMatch) flags[index] = 1;
  }
  return flags;
}

/** Returns whether a node matches. The root never does: its name is empty, as that of a function without one. */
export function isMatchingNode(graph: Graph, flags: Uint8Array, node: number): boolean {
  return node > 0 && flags[graph.name[node] as number] === 1;
}

/** Returns the next matching node in preorder after `node`, or before it if `step` is -1. Wraps around; -1 if none. */
export function findMatch(graph: Graph, flags: Uint8Array, node: number, step: 1 | -1): number {
  for (let count = 1; count <= graph.nodeCount; count++) {
    const candidate = (node + step * count + graph.nodeCount * 2) % graph.nodeCount;
    if (isMatchingNode(graph, flags, candidate)) return candidate;
  }
  return -1;
}

const REGEX_SYNTAX = /[\\.+*?()|[\]{}^$#&\-~]/g;

/** Returns a regular expression of the server's dialect that matches exactly this name. */
export function exactNameRegex(name: string): string {
  return `^${name.replace(REGEX_SYNTAX, "\\$&")}$`;
}
