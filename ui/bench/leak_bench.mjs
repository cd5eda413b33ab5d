// Memory of a page after UI_LEAK_ROUNDS zooms and refreshes. Fails if it grew.

import { BenchServer } from "./bench_server.mjs";
import { launchBrowser } from "./browser.mjs";
import { measureLeaks } from "./leaks.mjs";
import { pushServices } from "./services.mjs";

const rounds = Number(process.env["UI_LEAK_ROUNDS"] ?? 100);
const SERVICES = 4;

const server = await BenchServer.start();
const browser = await launchBrowser();
try {
  await pushServices(server.url, 0, SERVICES);
  const isStable = await measureLeaks(browser, server.url, "{}", rounds);
  if (!isStable) process.exitCode = 1;
} finally {
  await browser.close();
  await server.stop();
}
