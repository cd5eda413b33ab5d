// Many small services, beside which a bench measures a large one.

import { pushSeries } from "../e2e/support/api";
import { encodePprof } from "../e2e/support/pprof";

const MINUTES = 60;
const MINUTES_PER_PROFILE = 2;
const MINUTE_MS = 60_000;
const SERIES_PER_CALL = 500;
const VARIANTS = 4;
const STACKS = 24;
const CPU_PERIOD = 10_000_000n;

function profileOf(variant, timeMs) {
  const samples = Array.from({ length: STACKS }, (_, stack) => ({
    stack: ["main.main", `shop/web.handle${stack % 5}`, `shop/store.load${stack}`].map((name) => ({ name })),
    value: BigInt(1 + ((stack * 7 + variant * 3) % 90)) * CPU_PERIOD,
  }));
  return encodePprof({
    type: ["cpu", "nanoseconds"],
    periodType: ["cpu", "nanoseconds"],
    period: CPU_PERIOD,
    timeMs,
    durationMs: MINUTES_PER_PROFILE * MINUTE_MS,
    samples,
  });
}

/** Pushes an hour of profiles of the services `first` to `end`. */
export async function pushServices(url, first, end) {
  const now = Date.now();
  let series = [];
  for (let minute = 0; minute < MINUTES; minute += MINUTES_PER_PROFILE) {
    const timeMs = now - (MINUTES - minute) * MINUTE_MS;
    const profiles = Array.from({ length: VARIANTS }, (_, variant) => profileOf(variant, timeMs));
    for (let service = first; service < end; service++) {
      const name = `service-${String(service).padStart(4, "0")}`;
      const labels = { __name__: "process_cpu", service_name: name, pod: `${name}-0` };
      series.push({ labels, profile: profiles[service % VARIANTS] });
      if (series.length < SERIES_PER_CALL) continue;
      await pushSeries(url, series);
      series = [];
    }
  }
  if (series.length > 0) await pushSeries(url, series);
}
