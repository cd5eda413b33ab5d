// Adding, removing and naming of transforms.

import { showName, splitLineFrame } from "../graph/names";
import { exactNameRegex } from "../graph/search";
import { navigate, view } from "../url/store";
import type { FrameGrouping, TransformAction, TransformState } from "../url/view_state";

/** Name of each transform, in the order of menus. */
export const TRANSFORM_LABELS: Readonly<Record<TransformAction, string>> = {
  focus: "Focus",
  ignore: "Ignore",
  hide: "Hide",
  show: "Show only",
  showFrom: "Show from",
  collapseRecursion: "Collapse recursion",
  collapseBelow: "Collapse below",
};

/** Effect of each transform in one sentence. */
export const TRANSFORM_HELP: Readonly<Record<TransformAction, string>> = {
  focus: "Keeps stacks with a matching frame",
  ignore: "Drops stacks with a matching frame",
  hide: "Removes matching frames; their weight goes to the caller",
  show: "Keeps only matching frames",
  showFrom: "Makes the matching frame nearest the root the root",
  collapseRecursion: "Folds recursive calls of matching frames",
  collapseBelow: "Folds everything below matching frames into them",
};

export const TRANSFORM_ACTIONS = Object.keys(TRANSFORM_LABELS) as readonly TransformAction[];

/** Transforms that leave the paths of remaining frames as they are. */
const KEEPS_PATHS: ReadonlySet<TransformAction> = new Set<TransformAction>([
  "focus",
  "ignore",
  "collapseBelow",
]);

/** Returns whether frames of a grouping can be named in transforms. They match functions, files and binaries. */
export function hasTransforms(frames: FrameGrouping): boolean {
  return (
    frames === "function" ||
    frames === "line" ||
    frames === "file" ||
    frames === "binary" ||
    frames.startsWith("label:")
  );
}

/** Returns the function of a frame. Frames of lines name their file and line behind it. */
export function functionOfFrame(name: string, frames: FrameGrouping): string {
  return frames === "line" ? splitLineFrame(name).functionName : name;
}

/** Returns the transform of a frame as the graph shows it. */
export function transformOfFrame(
  action: TransformAction,
  name: string,
  frames: FrameGrouping,
): TransformState {
  // Frames of binaries end with a build id, and name the last part of a path.
  if (frames === "binary") {
    const pattern = exactNameRegex(name.replace(/@[0-9a-f]+$/i, "")).replace(/^\^/, "(^|/)");
    return { action, pattern, isRegex: true };
  }
  const isFunction = frames !== "file";
  return isFunction
    ? { action, pattern: functionOfFrame(name, frames), isRegex: false }
    : { action, pattern: exactNameRegex(name), isRegex: true };
}

/** Adds a transform to the view. */
export function addTransform(transform: TransformState): void {
  const transforms = [...view.peek().transforms, transform];
  navigate(
    KEEPS_PATHS.has(transform.action) ? { transforms } : { transforms, zoomPath: [], selectedPath: [] },
  );
}

/** Removes the transform at an index. The others keep their order. */
export function removeTransform(index: number): void {
  const transforms = view.peek().transforms.filter((_, position) => position !== index);
  navigate({ transforms, zoomPath: [], selectedPath: [] });
}

/** Reads a pattern as the user typed it: a name, or `/regex/`. */
export function parseTransform(action: TransformAction, text: string): TransformState | undefined {
  const isRegex = text.length > 2 && text.startsWith("/") && text.endsWith("/");
  const pattern = isRegex ? text.slice(1, -1) : text;
  if (pattern !== "") return { action, pattern, isRegex };
  return action === "collapseRecursion" ? { action, pattern: undefined, isRegex } : undefined;
}

export function showPattern({ pattern, isRegex }: TransformState): string {
  if (pattern === undefined) return "all functions";
  return showName(isRegex ? `/${pattern}/` : pattern);
}
