// Zooms that Escape undoes.

import type { Graph } from "../../graph/graph";
import { findPath } from "../../graph/path";
import { isSamePath } from "./selection";

/** Zooms that Escape undoes. */
const MAX_ZOOM_HISTORY = 100;

/** Zoomed paths before the current one. The browser's history moves independently of it. */
export class ZoomHistory {
  private paths: (readonly string[])[] = [];
  private content = "";

  /** Sets what paths mean. Paths of other frames, another direction or other transforms are forgotten. */
  follow(content: string): void {
    if (content !== this.content) this.paths = [];
    this.content = content;
  }

  push(path: readonly string[]): void {
    this.paths.push(path);
    if (this.paths.length > MAX_ZOOM_HISTORY) this.paths.shift();
  }

  /** Removes and returns the latest path that differs from the current one and may be in the graph. */
  takePrevious(graph: Graph, current: readonly string[]): readonly string[] | undefined {
    for (let path = this.paths.pop(); path !== undefined; path = this.paths.pop()) {
      if (!isSamePath(path, current) && mayContain(graph, path)) return path;
    }
    return undefined;
  }
}

/** Returns whether a graph contains a path, or hides the part in which it may be. */
function mayContain(graph: Graph, path: readonly string[]): boolean {
  const { node, matched } = findPath(graph, path);
  return matched === path.length || (graph.truncated[node] as number) > 0;
}
