// Names of profile types for people.

/** Parts of name:sample_type:sample_unit:period_type:period_unit. */
export interface ProfileTypeName {
  /** Such as `CPU time`. */
  readonly title: string;
  /** Unit of rates or averages: `cores`, `B/s`, `B`. */
  readonly unit: string;
}

/** Names by sample type, for all profiles that have no name of their own here. */
const SAMPLE_TITLES: Readonly<Record<string, string>> = {
  "process_cpu:cpu": "CPU time",
  "process_cpu:samples": "CPU samples",
  "process_cpu:cpu_clock": "CPU clock",
  "wall:wall": "Wall time",
  "wall:samples": "Wall samples",
  "off_cpu:off_cpu": "Off-CPU time",
  "memory:alloc_space": "Allocated memory",
  "memory:alloc_objects": "Allocated objects",
  "memory:inuse_space": "Memory in use",
  "memory:inuse_objects": "Objects in use",
  "memory:alloc_in_new_tlab_bytes": "Allocated memory (TLAB)",
  "memory:alloc_in_new_tlab_objects": "Allocated objects (TLAB)",
  "memory:alloc_outside_tlab_bytes": "Allocated memory (outside TLAB)",
  "memory:alloc_outside_tlab_objects": "Allocated objects (outside TLAB)",
  "memory:alloc_sample_bytes": "Allocated memory (sampled)",
  "memory:alloc_sample_objects": "Allocated objects (sampled)",
  "memory:malloc_bytes": "Native allocated memory",
  "memory:malloc_objects": "Native allocated objects",
  "memory:live": "Live objects",
  "memory:space": "Memory",
  "memory:objects": "Objects",
  "memory:samples": "Memory",
  "goroutine:goroutine": "Goroutines",
  "goroutine:goroutines": "Goroutines",
  "goroutines:goroutine": "Goroutines",
  "goroutines:goroutines": "Goroutines",
  "mutex:delay": "Mutex wait",
  "mutex:contentions": "Mutex contentions",
  "block:delay": "Block wait",
  "block:contentions": "Block contentions",
  "exceptions:samples": "Exceptions",
  "exceptions:exception": "Exceptions",
  "threadcreate:threadcreate": "Threads created",
};

const RATE_UNITS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    nanoseconds: "s/s",
    microseconds: "s/s",
    milliseconds: "s/s",
    seconds: "s/s",
    bytes: "B/s",
    count: "/s",
    samples: "/s",
  }),
);

const LEVEL_SAMPLES = /^(inuse_.*|goroutines?|live(_.*)?|threads?|threadcreate)$/;

/** Returns the name of a profile type. Unknown types keep their parts: `name: sample_type`. */
export function nameProfileType(profileType: string): ProfileTypeName {
  const [name = "", sampleType = "", sampleUnit = ""] = profileType.split(":");
  const title = SAMPLE_TITLES[`${name}:${sampleType}`] ?? rawTitle(name, sampleType);
  return { title, unit: unitOf(name, sampleType, sampleUnit) };
}

function rawTitle(name: string, sampleType: string): string {
  return sampleType === "" || sampleType === name ? name || "(no name)" : `${name}: ${sampleType}`;
}

function unitOf(name: string, sampleType: string, sampleUnit: string): string {
  if (LEVEL_SAMPLES.test(sampleType)) return sampleUnit === "bytes" ? "B" : "";
  if (sampleType === "cpu" || name === "process_cpu") return sampleUnit === "count" ? "/s" : "cores";
  return RATE_UNITS.get(sampleUnit) ?? (sampleUnit === "" ? "" : `${sampleUnit}/s`);
}

/** Order in lists: what most users look for first. */
const TITLE_ORDER = [
  "process_cpu:cpu",
  "wall:wall",
  "off_cpu:off_cpu",
  "memory:inuse_space",
  "memory:alloc_space",
  "goroutine",
  "goroutines",
  "mutex:delay",
  "block:delay",
];

/** Compares profile types for a list. */
export function compareProfileTypes(left: string, right: string): number {
  const rank = (profileType: string) => {
    const index = TITLE_ORDER.findIndex((prefix) => profileType.startsWith(`${prefix}:`));
    return index < 0 ? TITLE_ORDER.length : index;
  };
  return rank(left) - rank(right) || (left < right ? -1 : left > right ? 1 : 0);
}
