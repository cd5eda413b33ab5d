// Reachability of the server. After a lost connection, polls until the server is ready.
import { type ReadonlySignal, signal } from "@preact/signals";

const FIRST_POLL_DELAY_MS = 500;
const MAX_POLL_DELAY_MS = 5_000;
const POLL_TIMEOUT_MS = 4_000;

const up = signal(true);
const recoveryCount = signal(0);
let polls: ReturnType<typeof setTimeout> | undefined;

export const isServerUp: ReadonlySignal<boolean> = up;

/** Number of times that the server returned. Queries that failed without a response run when it grows. */
export const recoveries: ReadonlySignal<number> = recoveryCount;

/** Returns the address of a path below the root of the server, wherever a proxy mounts it. */
export function serverUrl(path: string): string {
  return new URL(`../${path}`, document.baseURI).href;
}

/** Records that a call got no response. */
export function reportUnreachable(): void {
  up.value = false;
  if (polls === undefined) schedulePoll(FIRST_POLL_DELAY_MS);
}

function schedulePoll(delay: number): void {
  polls = setTimeout(async () => {
    if (await isReady()) {
      polls = undefined;
      up.value = true;
      recoveryCount.value++;
    } else schedulePoll(Math.min(delay * 1.5, MAX_POLL_DELAY_MS));
  }, delay);
}

// A proxy may hide /ready, so that a response without an error of the server counts as well.
async function isReady(): Promise<boolean> {
  try {
    const response = await fetch(serverUrl("ready"), {
      signal: AbortSignal.timeout(POLL_TIMEOUT_MS),
      cache: "no-store",
    });
    return response.status < 500;
  } catch {
    return false;
  }
}

/** Time between two checks of a page that makes no calls. */
const HEARTBEAT_INTERVAL_MS = 5_000;

/** Begins to check the connection while the page is visible. */
export function startHeartbeat(): void {
  setInterval(async () => {
    if (document.hidden || !up.peek()) return;
    if (!(await isReady())) reportUnreachable();
  }, HEARTBEAT_INTERVAL_MS);
}
