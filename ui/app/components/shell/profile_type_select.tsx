// Profile type of the view, by its name for people.
import { effect } from "@preact/signals";
import { call } from "../../api/client";
import { liveQuery, type QueryState } from "../../api/live_query";
import { compareProfileTypes, nameProfileType } from "../../theme/profile_types";
import { findProfileType } from "../../url/pyroscope_links";
import { timeRangeOf } from "../../url/query_of";
import { navigate, replaceView, view } from "../../url/store";

/** Profile types in the range of the view, in the order of the list. */
export const profileTypes = liveQuery(
  () => {
    const { start, end } = timeRangeOf(view.value);
    return { tenant: view.value.tenant, start: String(start), end: String(end) };
  },
  async ({ tenant, start, end }, signal) => {
    const { message } = await call(
      "querier.v1.QuerierService/ProfileTypes",
      { start, end },
      { signal, tenant },
    );
    const types = (message.profileTypes ?? []).map((type) => type.ID ?? "").filter((type) => type !== "");
    return types.sort(compareProfileTypes);
  },
);

/** Completes the profile type of the view: the first one if it has none, that of an old link if it names no period. */
export function startProfileTypeChoice(): void {
  effect(() => {
    const { kind, value: types = [] } = profileTypes.state.value;
    const { profileType } = view.value;
    if (kind !== "done" || types.length === 0) return;
    const chosen = profileType === "" ? types[0] : findProfileType(profileType, types);
    if (chosen !== undefined && chosen !== profileType) replaceView({ profileType: chosen });
  });
}

const EMPTY_LIST_TEXTS: Readonly<Record<QueryState<unknown>["kind"], string>> = {
  idle: "Profile types…",
  loading: "Profile types…",
  done: "No profile types",
  failed: "Profile types failed",
  cancelled: "Profile types canceled",
};

export function ProfileTypeSelect() {
  const { profileType } = view.value;
  const { kind, value: types = [] } = profileTypes.state.value;
  const listed = profileType === "" || types.includes(profileType) ? types : [profileType, ...types];
  const labels = labelTypes(listed);
  return (
    <select
      class="field profile-type"
      aria-label="Profile type"
      title={profileType}
      value={profileType}
      onChange={(event) =>
        navigate({ profileType: event.currentTarget.value, zoomPath: [], selectedPath: [], profileIds: [] })
      }
    >
      {listed.length === 0 && <option value="">{EMPTY_LIST_TEXTS[kind]}</option>}
      {listed.map((type, index) => (
        <option key={type} value={type} title={type}>
          {labels[index]}
        </option>
      ))}
    </select>
  );
}

/** Returns names with units. Types that share a name have their parts as well. */
export function labelTypes(types: readonly string[]): readonly string[] {
  const names = types.map((type) => {
    const { title, unit } = nameProfileType(type);
    return unit === "" ? title : `${title} (${unit})`;
  });
  return names.map((name, index) => {
    const isUnique = names.indexOf(name) === names.lastIndexOf(name);
    return isUnique ? name : `${name} – ${types[index]}`;
  });
}
