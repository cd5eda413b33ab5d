// Views of the Explore page.

import { effect } from "@preact/signals";
import { functionOfFrame } from "../components/transforms";
import { view } from "../url/store";
import type { ViewName, ViewState } from "../url/view_state";

/** Titles in the order of their keys. */
export const VIEW_TITLES: readonly (readonly [name: ViewName, title: string])[] = [
  ["flame", "Flame"],
  ["icicle", "Icicle"],
  ["table", "Table"],
  ["tree", "Tree"],
  ["sandwich", "Sandwich"],
];

/** Function of a sandwich, and the selection at the time. */
interface ShownSandwich {
  readonly name: string | undefined;
  readonly selection: string;
}

let lastSandwich: ShownSandwich | undefined;

effect(() => {
  if (view.value.views.some((name) => name === "sandwich")) lastSandwich = sandwichOf(view.value);
});

function sandwichOf({ sandwichFunction, selectedPath }: ViewState): ShownSandwich {
  return { name: sandwichFunction, selection: JSON.stringify(selectedPath) };
}

/** Returns whether the function of the sandwich was shown with the same selection. */
function isLastSandwich(state: ViewState): boolean {
  const { name, selection } = sandwichOf(state);
  return name !== undefined && name === lastSandwich?.name && selection === lastSandwich.selection;
}

/** Returns the views after one of them changed. A view is never beside itself. */
export function viewsWith(views: ViewState["views"], pane: 0 | 1, name: ViewName): ViewState["views"] {
  const [first, second] = views;
  if (second === undefined) return [name];
  const other = pane === 0 ? second : first;
  if (other === name) return [second, first];
  return pane === 0 ? [name, second] : [first, name];
}

/**
 * Returns the change that opens a view in a pane. A sandwich is that of the selected function, if there is one. With the
 * selection of the last sandwich, it is the last one.
 */
export function changeToView(state: ViewState, pane: 0 | 1, name: ViewName): Partial<ViewState> {
  const views = viewsWith(state.views, pane, name);
  const isShown = state.views.some((shown) => shown === name);
  const isNew = name === "sandwich" && !isShown && !isLastSandwich(state);
  const selected = isNew ? selectedFunction(state) : undefined;
  return selected === undefined ? { views } : { views, sandwichFunction: selected };
}

/** Returns the function of the selected frame, or undefined if that is none. */
function selectedFunction({ selectedPath, frames }: ViewState): string | undefined {
  const name = selectedPath.at(-1);
  const isByLabel = frames.startsWith("label:");
  // The first level below a label has its values.
  const isFunction = frames === "function" || frames === "line" || (isByLabel && selectedPath.length > 1);
  return name === undefined || !isFunction ? undefined : functionOfFrame(name, frames);
}
