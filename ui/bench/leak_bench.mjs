// Memory of a page after UI_LEAK_ROUNDS zooms, transforms and refreshes. Fails if it grew.

import { pushFile } from "../e2e/support/api";
import { BenchServer } from "./bench_server.mjs";
import { launchBrowser } from "./browser.mjs";
import { measureLeaks } from "./leaks.mjs";
import { pushServices } from "./services.mjs";

const rounds = Number(process.env["UI_LEAK_ROUNDS"] ?? 100);
const SERVICES = 4;
/** Functions whose names make the text of a graph so long that memory grows visibly if the page keeps it. */
const LIGHT_FUNCTIONS = 4_000;
/** A few millionths of the total: enough to be in the graph, too little to be clicked. */
const LIGHT_NANOSECONDS = 10_000_000;
const PACKAGE = "shop/".padEnd(100, "deep/");
const PUSH_AGE_MS = 600_000;

function pushLightFunctions(url) {
  const lines = Array.from(
    { length: LIGHT_FUNCTIONS },
    (_, index) => `main.main;${PACKAGE}light.function${index} ${LIGHT_NANOSECONDS}\n`,
  );
  const fromMs = Date.now() - PUSH_AGE_MS;
  return pushFile(url, lines.join(""), { name: "light.cpu", fromMs, extra: { sampleRate: "1000000000" } });
}

const server = await BenchServer.start();
const browser = await launchBrowser();
try {
  await pushServices(server.url, 0, SERVICES);
  await pushLightFunctions(server.url);
  const isStable = await measureLeaks(browser, server.url, "{}", rounds);
  if (!isStable) process.exitCode = 1;
} finally {
  await browser.close();
  await server.stop();
}
