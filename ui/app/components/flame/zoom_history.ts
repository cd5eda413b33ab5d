// Zooms that Escape undoes.

import type { Graph } from "../../graph/graph";
import { findPath } from "../../graph/path";
import { type FrameZoom, isSameZoom } from "./selection";

/** Zooms that Escape undoes. */
const MAX_ZOOM_HISTORY = 100;

/** Values that give zooms their meaning. */
interface ZoomContent {
  /** Frames, direction and transforms, which paths depend on. */
  readonly frames: string;
  /** Profiles and stacks, which ranges depend on. */
  readonly profiles: string;
}

/** Zooms before the current one. The browser's history moves independently of it. */
export class ZoomHistory {
  private zooms: FrameZoom[] = [];
  private content: ZoomContent = { frames: "", profiles: "" };

  /** Sets the content of the graph. Drops zooms that mean another part of it. */
  follow(content: ZoomContent): void {
    if (content.frames !== this.content.frames) this.zooms = [];
    if (content.profiles !== this.content.profiles)
      this.zooms = this.zooms.filter(({ range }) => range === undefined);
    this.content = content;
  }

  push(zoom: FrameZoom): void {
    this.zooms.push(zoom);
    if (this.zooms.length > MAX_ZOOM_HISTORY) this.zooms.shift();
  }

  /** Removes and returns the latest zoom that differs from the current one and may be in the graph. */
  takePrevious(graph: Graph, current: FrameZoom): FrameZoom | undefined {
    for (let zoom = this.zooms.pop(); zoom !== undefined; zoom = this.zooms.pop()) {
      if (!isSameZoom(zoom, current) && mayContain(graph, zoom.path)) return zoom;
    }
    return undefined;
  }
}

/** Returns whether a graph contains a path, or hides the part in which it may be. */
function mayContain(graph: Graph, path: readonly string[]): boolean {
  const { node, matched } = findPath(graph, path);
  return matched === path.length || (graph.truncated[node] as number) > 0;
}
