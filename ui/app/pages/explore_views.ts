// Views of the Explore page.

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
