// Views of the Explore page.

import { functionOfFrame } from "../components/transforms";
import type { ViewName, ViewState } from "../url/view_state";

/** Titles in the order of their keys. */
export const VIEW_TITLES: readonly (readonly [name: ViewName, title: string])[] = [
  ["flame", "Flame"],
  ["icicle", "Icicle"],
  ["table", "Table"],
  ["tree", "Tree"],
  ["sandwich", "Sandwich"],
];

/** Returns the views after one of them changed. A view is never beside itself. */
export function viewsWith(views: ViewState["views"], pane: 0 | 1, name: ViewName): ViewState["views"] {
  const [first, second] = views;
  if (second === undefined) return [name];
  const other = pane === 0 ? second : first;
  if (other === name) return [second, first];
  return pane === 0 ? [name, second] : [first, name];
}

/** Returns the change that opens a view in a pane. A sandwich is that of the selected function, if there is one. */
export function changeToView(state: ViewState, pane: 0 | 1, name: ViewName): Partial<ViewState> {
  const views = viewsWith(state.views, pane, name);
  const isNew = name === "sandwich" && !state.views.some((shown) => shown === name);
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
