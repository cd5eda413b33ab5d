// Bench of a server and of its pages. Starts the program ATHANOR_BIN on a free port with data of its own:
// R-1k, then 200 and 1 000 small services beside it.

import { BenchServer } from "./bench_server.mjs";
import { launchBrowser } from "./browser.mjs";
import { measureGraphs } from "./graph_calls.mjs";
import { measureLeaks } from "./leaks.mjs";
import { measureActions, measureFirstLoad, measureFleet } from "./page_bench.mjs";
import { pushServices } from "./services.mjs";

const SERVICES = 200;
const MANY_SERVICES = 1_000;
const LEAK_ROUNDS = 100;

/** Returns the selector of the service of the reference set, which is the only one so far. */
async function selectorOfDataset(url) {
  const end = Date.now();
  const response = await fetch(`${url}/querier.v1.QuerierService/LabelValues`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ name: "service_name", start: String(end - 24 * 3600 * 1000), end: String(end) }),
  });
  const { names = [] } = await response.json();
  if (names.length !== 1) throw new Error(`the reference set has the services ${names.join(", ")}`);
  return `{service_name=${JSON.stringify(names[0])}}`;
}

const server = await BenchServer.start();
const browser = await launchBrowser();
try {
  server.pushDataset("R-1k");
  const selector = await selectorOfDataset(server.url);
  await measureGraphs(server);
  await pushServices(server.url, 0, SERVICES);
  await measureFirstLoad(browser, server.url);
  await measureFleet(browser, server.url, SERVICES, 60);
  await measureActions(browser, server.url, selector);
  await measureLeaks(browser, server.url, selector, LEAK_ROUNDS);
  await pushServices(server.url, SERVICES, MANY_SERVICES);
  await measureFleet(browser, server.url, MANY_SERVICES, 250);
} finally {
  await browser.close();
  await server.stop();
}
