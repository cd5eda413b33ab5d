// View that a row of the fleet opens.

import { withLabel } from "../url/selector";
import { view } from "../url/store";
import type { FleetRow } from "./fleet_rows";

/** Returns the view that a row opens. */
export function exploreOfRow(row: FleetRow, label: string) {
  const { selector, profileType } = view.peek();
  const isKnownType = row.types.length === 0 || row.types.includes(profileType);
  return {
    page: "explore",
    selector: withLabel(selector, { name: label, operator: "=", value: row.name }),
    groupBy: "",
    profileType: isKnownType ? profileType : (row.types[0] ?? profileType),
  } as const;
}
