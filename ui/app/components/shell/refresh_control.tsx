// Refresh of the page, once and at intervals.
import { computed, effect } from "@preact/signals";
import { refresh } from "../../url/clock";
import { navigate, view } from "../../url/store";

const INTERVALS: readonly (readonly [seconds: number, title: string])[] = [
  [0, "Off"],
  [10, "10 s"],
  [30, "30 s"],
  [60, "1 min"],
  [300, "5 min"],
];

/** Refreshes at the interval of the view while the page is visible, and at once when it becomes visible late. */
export function startRefresh(): void {
  const intervalSeconds = computed(() => view.value.refreshSeconds);
  let lastRefresh = Date.now();
  const refreshNow = () => {
    lastRefresh = Date.now();
    refresh();
  };
  effect(() => {
    const intervalMs = intervalSeconds.value * 1_000;
    if (intervalMs === 0) return;
    const refreshIfVisible = () => {
      if (!document.hidden && Date.now() - lastRefresh >= intervalMs - 100) refreshNow();
    };
    lastRefresh = Date.now();
    const timer = setInterval(refreshIfVisible, intervalMs);
    document.addEventListener("visibilitychange", refreshIfVisible);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", refreshIfVisible);
    };
  });
}

export function RefreshControl() {
  const { refreshSeconds } = view.value;
  const isListed = INTERVALS.some(([seconds]) => seconds === refreshSeconds);
  return (
    <span class="refresh-control">
      <button
        type="button"
        class="button is-icon"
        title="Refresh now"
        aria-label="Refresh now"
        onClick={refresh}
      >
        ↻
      </button>
      <select
        class="field"
        aria-label="Refresh interval"
        title="Refresh interval"
        value={String(refreshSeconds)}
        onChange={(event) => navigate({ refreshSeconds: Number(event.currentTarget.value) })}
      >
        {!isListed && <option value={String(refreshSeconds)}>{refreshSeconds} s</option>}
        {INTERVALS.map(([seconds, title]) => (
          <option key={seconds} value={String(seconds)}>
            {title}
          </option>
        ))}
      </select>
    </span>
  );
}
