// Probe of a page: time from an input to the last change of pixels that follows from it.

const QUIET_MS = 250;
const SETTLE_TIMEOUT_MS = 30_000;

/** Runs in the page before its scripts. */
function installProbe() {
  const probe = { startedAt: undefined, paintedAt: 0, pendingCalls: 0 };
  // A message arrives after the frame whose callbacks sent it has been painted.
  const channel = new MessageChannel();
  channel.port1.onmessage = () => {
    probe.paintedAt = performance.now();
  };
  let isWaiting = false;
  const noteMutation = () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => {
      isWaiting = false;
      channel.port2.postMessage(0);
    });
  };
  new MutationObserver(noteMutation).observe(document, {
    attributes: true,
    characterData: true,
    childList: true,
    subtree: true,
  });
  // Each drawing on a canvas begins with this. Drawings run within a frame.
  const { clearRect } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...area) {
    channel.port2.postMessage(0);
    return clearRect.apply(this, area);
  };
  for (const type of ["pointerup", "click", "keydown", "input", "change"]) {
    const noteInput = () => {
      probe.startedAt ??= performance.now();
    };
    addEventListener(type, noteInput, { capture: true });
  }
  const { fetch } = globalThis;
  const replay = async (url, init) => {
    let body = probe.replays.get(url);
    if (body === undefined) {
      const response = await fetch(url, init);
      body = { bytes: await response.arrayBuffer(), headers: [...response.headers] };
      probe.replays.set(url, body);
    }
    init?.signal?.throwIfAborted();
    return new Response(body.bytes.slice(), { headers: body.headers });
  };
  globalThis.fetch = async (url, init) => {
    probe.pendingCalls++;
    try {
      return await (probe.replays === undefined ? fetch(url, init) : replay(String(url), init));
    } finally {
      probe.pendingCalls--;
    }
  };
  globalThis.probe = probe;
}

export async function addProbe(context) {
  await context.addInitScript(installProbe);
}

/** Repeats the first response of each method from now on: the browser's tools retain all responses of the network. */
export function replayResponses(page) {
  return page.evaluate(() => {
    globalThis.probe.replays = new Map();
  });
}

/** Waits until no panel loads, no call runs, and nothing has been drawn for a while. */
export async function settle(page) {
  await page.waitForFunction(
    (quiet) =>
      document.querySelector('[aria-busy="true"]') === null &&
      globalThis.probe.pendingCalls === 0 &&
      performance.now() - globalThis.probe.paintedAt > quiet,
    QUIET_MS,
    { timeout: SETTLE_TIMEOUT_MS, polling: 50 },
  );
}

/** Returns the milliseconds from the first input of an action to its last change of pixels. */
export async function measureAction(page, act) {
  await settle(page);
  await page.evaluate(() => {
    globalThis.probe.startedAt = undefined;
  });
  await act();
  await settle(page);
  return page.evaluate(() => Math.max(0, globalThis.probe.paintedAt - (globalThis.probe.startedAt ?? 0)));
}
