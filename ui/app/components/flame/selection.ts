// Zoomed and selected frames of a flame graph: in the URL, or of one component alone.

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import { isSameRange, type ZoomRange } from "../../canvas/zoom_range";
import { profilesKeyOf } from "../../url/query_details";
import { navigate, view } from "../../url/store";
import type { FrameGrouping } from "../../url/view_state";
import { parseZoomRange, writeZoomRange } from "../../url/zoom_text";

/** Zoomed part of a graph. */
export interface FrameZoom {
  readonly path: readonly string[];
  /** Range that is shown in place of the frame of the path. */
  readonly range: ZoomRange | undefined;
}

export const WHOLE_ZOOM: FrameZoom = { path: [], range: undefined };

/** Paths of frame names from the root, and what they mean. The root itself has the empty path. */
export interface FrameSelection {
  readonly frames: ReadonlySignal<FrameGrouping>;
  /** Whether callers are below their callees. */
  readonly isInverted: ReadonlySignal<boolean>;
  /** Whether links store the paths. */
  readonly isInLink: boolean;
  readonly zoomPath: ReadonlySignal<readonly string[]>;
  readonly selectedPath: ReadonlySignal<readonly string[]>;
  /** Range that is shown in place of the zoomed frame. */
  readonly zoomRange: ReadonlySignal<ZoomRange | undefined>;
  /** Zooms to a frame or to merged ones, and selects a frame. */
  zoomTo(zoom: FrameZoom, selected: readonly string[]): void;
  select(path: readonly string[]): void;
}

/** Selection of the page. All its views share it. */
export const pageSelection: FrameSelection = {
  frames: computed(() => view.value.frames),
  isInverted: computed(() => view.value.inverted),
  isInLink: true,
  zoomPath: computed(() => view.value.zoomPath),
  selectedPath: computed(() => view.value.selectedPath),
  zoomRange: computed(() => parseZoomRange(view.value.zoomRange)),
  zoomTo: ({ path, range }, selected) =>
    navigate({
      zoomPath: path,
      zoomRange: range === undefined ? "" : writeZoomRange(range),
      selectedPath: selected,
    }),
  select: (path) => navigate({ selectedPath: path }, "typing"),
};

/** Creates a selection of functions that no link stores. */
export function createLocalSelection(isInverted: boolean): FrameSelection {
  const zoomPath = signal<readonly string[]>([]);
  const selectedPath = signal<readonly string[]>([]);
  const storedRange = signal<{ range: ZoomRange; profilesKey: string } | undefined>(undefined);
  // A range is a share of one graph.
  const zoomRange = computed(() => {
    const stored = storedRange.value;
    return stored?.profilesKey === profilesKeyOf(view.value) ? stored.range : undefined;
  });
  return {
    frames: signal<FrameGrouping>("function"),
    isInverted: signal(isInverted),
    isInLink: false,
    zoomPath,
    selectedPath,
    zoomRange,
    zoomTo: ({ path, range }, selected) => {
      storedRange.value = range && { range, profilesKey: profilesKeyOf(view.peek()) };
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

export function isSameZoom(first: FrameZoom, second: FrameZoom): boolean {
  if (!isSamePath(first.path, second.path)) return false;
  if (first.range === undefined || second.range === undefined) return first.range === second.range;
  return isSameRange(first.range, second.range);
}

/** Returns the current zoom of a selection. */
export function zoomOf({ zoomPath, zoomRange }: FrameSelection): FrameZoom {
  return { path: zoomPath.peek(), range: zoomRange.peek() };
}
