// Profile type of the view, by its name for people.
import { effect } from "@preact/signals";
import { call } from "../../api/client";
import { liveQuery, type QueryState } from "../../api/live_query";
import { compareProfileTypes, nameProfileType } from "../../theme/profile_types";
import { notify } from "../../url/notices";
import { findProfileType } from "../../url/pyroscope_links";
import { timeRangeOf } from "../../url/query_of";
import { navigate, replaceView, view } from "../../url/store";
import { MAX_TIME_MS } from "../../url/time";

/** Longest type that a notice shows whole. */
const MAX_TYPE_CHARS = 80;

/** Profile types in the range of the view, in the order of the list. */
export const profileTypes = liveQuery(() => {
  const { start, end } = timeRangeOf(view.value);
  return { tenant: view.value.tenant, start: String(start), end: String(end) };
}, loadTypes);

interface TypesRequest {
  readonly tenant: string;
  readonly start: string;
  readonly end: string;
}

async function loadTypes({ tenant, start, end }: TypesRequest, signal: AbortSignal): Promise<string[]> {
  const { message } = await call(
    "querier.v1.QuerierService/ProfileTypes",
    { start, end },
    { signal, tenant },
  );
  const types = (message.profileTypes ?? []).map((type) => type.ID ?? "").filter((type) => type !== "");
  return types.sort(compareProfileTypes);
}

interface AbsentType {
  readonly tenant: string;
  readonly profileType: string;
  /** Type of the range that replaces it. */
  readonly nearest: string;
}

/** Types that some stored profile has. Further refreshes do not search the whole time for them. */
const storedTypes = new Set<string>();

function storedKey(tenant: string, profileType: string): string {
  return JSON.stringify([tenant, profileType]);
}

/** Returns the type of the view if the range has only others, unless it is known that some profile has it. */
function absentType(): AbsentType | undefined {
  const { kind, value: types = [] } = profileTypes.state.value;
  const { tenant, profileType } = view.value;
  const nearest = types[0];
  if (kind !== "done" || nearest === undefined || profileType === "") return undefined;
  if (storedTypes.has(storedKey(tenant, profileType))) return undefined;
  return findProfileType(profileType, types) === undefined ? { tenant, profileType, nearest } : undefined;
}

/** Replaces a type that no stored profile has. A type with profiles at another time stays. */
async function replaceUnknownType(
  { tenant, profileType, nearest }: AbsentType,
  signal: AbortSignal,
): Promise<void> {
  const stored = await loadTypes({ tenant, start: "1", end: String(MAX_TIME_MS) }, signal);
  if (signal.aborted) return;
  if (findProfileType(profileType, stored) !== undefined) {
    storedTypes.add(storedKey(tenant, profileType));
    return;
  }
  const title = nameProfileType(nearest).title;
  notify(
    `No profile has the type ${profileType.slice(0, MAX_TYPE_CHARS)}. The page shows ${title}.`,
    "warning",
  );
  replaceView({ profileType: nearest });
}

/**
 * Completes the profile type of the view: the first one if it has none or an unknown one, that of an old link if it
 * names no period.
 */
export function startProfileTypeChoice(): void {
  effect(() => {
    const { kind, value: types = [] } = profileTypes.state.value;
    const { profileType } = view.value;
    if (kind !== "done" || types.length === 0) return;
    const chosen = profileType === "" ? types[0] : findProfileType(profileType, types);
    if (chosen !== undefined && chosen !== profileType) replaceView({ profileType: chosen });
  });
  liveQuery(absentType, replaceUnknownType);
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
