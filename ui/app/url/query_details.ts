// Parts of a view that belong to the profiles of one query. Another query begins without them.

import { DEFAULT_VIEW, type ViewState } from "./view_state";

/** Change that removes what was chosen in the profiles of one query. */
export const CLEARED_DETAILS = {
  groupBy: DEFAULT_VIEW.groupBy,
  transforms: DEFAULT_VIEW.transforms,
  zoomPath: DEFAULT_VIEW.zoomPath,
  zoomRange: DEFAULT_VIEW.zoomRange,
  selectedPath: DEFAULT_VIEW.selectedPath,
  sandwichFunction: DEFAULT_VIEW.sandwichFunction,
  search: DEFAULT_VIEW.search,
  profileIds: DEFAULT_VIEW.profileIds,
  spanIds: DEFAULT_VIEW.spanIds,
  traceIds: DEFAULT_VIEW.traceIds,
} as const satisfies Partial<ViewState>;

/** Fields that choose the profiles and the stacks of a graph. */
const PROFILE_FIELDS = [
  "tenant",
  "profileType",
  "selector",
  "from",
  "until",
  "transforms",
  "profileIds",
  "spanIds",
  "traceIds",
] as const satisfies readonly (keyof ViewState)[];

/** Returns a text that differs between views of other profiles or stacks. */
export function profilesKeyOf(state: ViewState): string {
  return JSON.stringify(PROFILE_FIELDS.map((field) => state[field]));
}

/** Returns the change that opens the fleet. A fleet that is open already keeps its label. */
export function fleetChange({ page }: Pick<ViewState, "page">): Partial<ViewState> {
  return page === "fleet" ? { page } : { ...CLEARED_DETAILS, page: "fleet" };
}

/** Returns the change that opens Explore with the profiles of a selector. */
export function exploreChange(selector: string): Partial<ViewState> {
  return { ...CLEARED_DETAILS, page: "explore", selector };
}
