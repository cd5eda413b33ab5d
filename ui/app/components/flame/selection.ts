// Zoomed and selected frames of a flame graph: in the URL, or of one component alone.

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import { navigate, view } from "../../url/store";

/** Paths of frame names from the root. The root itself has the empty path. */
export interface FrameSelection {
  readonly zoomPath: ReadonlySignal<readonly string[]>;
  readonly selectedPath: ReadonlySignal<readonly string[]>;
  /** Zooms to a frame. Selects it, or the frame of `selected`. */
  zoomTo(path: readonly string[], selected?: readonly string[]): void;
  select(path: readonly string[]): void;
}

/** Selection of the page. All its views share it. */
export const pageSelection: FrameSelection = {
  zoomPath: computed(() => view.value.zoomPath),
  selectedPath: computed(() => view.value.selectedPath),
  zoomTo: (path, selected = path) => navigate({ zoomPath: path, selectedPath: selected }),
  select: (path) => navigate({ selectedPath: path }, "typing"),
};

/** Creates a selection that no link stores. */
export function createLocalSelection(): FrameSelection {
  const zoomPath = signal<readonly string[]>([]);
  const selectedPath = signal<readonly string[]>([]);
  return {
    zoomPath,
    selectedPath,
    zoomTo: (path, selected = path) => {
      zoomPath.value = path;
      selectedPath.value = selected;
    },
    select: (path) => {
      selectedPath.value = path;
    },
  };
}

export function isSamePath(first: readonly string[], second: readonly string[]): boolean {
  return first.length === second.length && first.every((name, index) => name === second[index]);
}
