// View that a row of the fleet opens.

import { exploreChange } from "../url/query_details";
import { withLabel } from "../url/selector";
import { view } from "../url/store";
import type { ViewState } from "../url/view_state";
import type { FleetRow } from "./fleet_rows";

/** Returns the change that opens a row. */
export function exploreOfRow(row: FleetRow, label: string): Partial<ViewState> {
  const { selector, profileType } = view.peek();
  const isKnownType = row.types.length === 0 || row.types.includes(profileType);
  return {
    ...exploreChange(withLabel(selector, { name: label, operator: "=", value: row.name })),
    profileType: isKnownType ? profileType : (row.types[0] ?? profileType),
  };
}
