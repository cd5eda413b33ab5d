// Graph whose truncated nodes open: subtrees are fetched and put in place of what was left out.

import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Graph } from "../../graph/graph";
import { mergeSubtree } from "../../graph/merge_subtree";
import { findPath, pathOfNode } from "../../graph/path";

/** Fetches the callees of a node without the `skip` heaviest. */
export type SubtreeLoader = (path: readonly string[], skip: number, signal: AbortSignal) => Promise<Graph>;

/** Result of the last attempt to open a truncated node. */
export type OpenOutcome = "added" | "nothing" | "failed";

/** Opened form of one graph. All views of the graph share it. */
export class GraphExpansion {
  private readonly opened: Signal<Graph>;
  private readonly pending = new Map<string, Promise<boolean>>();
  private readonly outcomes = new Map<string, OpenOutcome>();
  /** Number of subtrees that are on their way. */
  readonly loadingCount: Signal<number> = signal(0);

  /** `base` is the graph as it was loaded. */
  constructor(readonly base: Graph) {
    this.opened = signal(base);
  }

  get graph(): ReadonlySignal<Graph> {
    return this.opened;
  }

  /** Returns the result of the last attempt to open a node; undefined without one, or if it was aborted. */
  outcomeOf(path: readonly string[]): OpenOutcome | undefined {
    return this.outcomes.get(JSON.stringify(path));
  }

  /** Forgets failed attempts, so that the views of the graph repeat them. */
  forgetFailures(): void {
    for (const [key, outcome] of this.outcomes) if (outcome === "failed") this.outcomes.delete(key);
  }

  /** Opens a truncated node. Returns whether callees were added. */
  openNode(node: number, load: SubtreeLoader, abort: AbortSignal): Promise<boolean> {
    const path = pathOfNode(this.opened.peek(), node);
    const key = JSON.stringify(path);
    const running = this.pending.get(key);
    if (running !== undefined) return running;
    const added = this.openOnce(path, key, load, abort);
    this.pending.set(key, added);
    return added;
  }

  /** Opens truncated nodes until the path is found, or until nothing more hides it. */
  async openPath(path: readonly string[], load: SubtreeLoader, abort: AbortSignal): Promise<void> {
    for (let round = 0; round <= path.length; round++) {
      const graph = this.opened.peek();
      const match = findPath(graph, path);
      if (match.matched === path.length || !((graph.truncated[match.node] as number) > 0)) return;
      if (!(await this.openNode(match.node, load, abort))) return;
    }
  }

  private async openOnce(
    path: readonly string[],
    key: string,
    load: SubtreeLoader,
    abort: AbortSignal,
  ): Promise<boolean> {
    this.loadingCount.value++;
    this.outcomes.delete(key);
    try {
      const hasAdded = await this.fetchCallees(path, load, abort);
      this.outcomes.set(key, hasAdded ? "added" : "nothing");
      return hasAdded;
    } catch (error) {
      if (!abort.aborted) this.outcomes.set(key, "failed");
      throw error;
    } finally {
      this.pending.delete(key);
      this.loadingCount.value--;
    }
  }

  private async fetchCallees(
    path: readonly string[],
    load: SubtreeLoader,
    abort: AbortSignal,
  ): Promise<boolean> {
    const { node } = findPath(this.opened.peek(), path);
    const skip = this.opened.peek().callees[node] as number;
    const subtree = await load(path, skip, abort);
    const graph = this.opened.peek();
    const match = findPath(graph, path);
    if (match.matched !== path.length || graph.callees[match.node] !== skip) return false;
    this.opened.value = mergeSubtree(graph, match.node, subtree);
    return subtree.nodeCount > 1;
  }
}

const expansions = new WeakMap<Graph, GraphExpansion>();

/** Returns the expansion of a graph, the same for every view of it. */
export function expansionOf(base: Graph): GraphExpansion {
  let expansion = expansions.get(base);
  if (expansion === undefined) {
    expansion = new GraphExpansion(base);
    expansions.set(base, expansion);
  }
  return expansion;
}
