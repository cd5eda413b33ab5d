// Writes the images of docs/images/ui: each page in both themes, from a server that has profiles.
// The server's address is the argument, or ATHANOR_URL, or http://127.0.0.1:4040. The UI is the server's, or that in the
// folder ATHANOR_UI_DIST.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "@playwright/test";

const SERVER_URL = (process.argv[2] ?? process.env["ATHANOR_URL"] ?? "http://127.0.0.1:4040").replace(
  /\/$/,
  "",
);
const UI_DIST = process.env["ATHANOR_UI_DIST"];
const UI_PATH = "/ui/";
/** Address that the images show, wherever the server is. */
const SHOWN_URL = "http://127.0.0.1:4040";
const IMAGE_FOLDER = fileURLToPath(new URL("../../docs/images/ui", import.meta.url));
const WINDOW_SIZE = { width: 1_440, height: 900 };
const THEMES = ["light", "dark"];
const STATS_METHOD = "**/querier.v1.QuerierService/GetProfileStats";

/** Row of the table of functions, by total, whose function the sandwich shows. The first ones are entry points. */
const SANDWICH_ROW = 9;

/** Returns each page with the parameters of its link and an element that its results contain. */
function listPages({ service, functionName }) {
  const explore = { v: "1", p: "explore", q: `{service_name=${JSON.stringify(service)}}` };
  return [
    { name: "start", link: { v: "1" }, ready: ".start-command pre", isEmpty: true },
    { name: "fleet", link: { v: "1" }, ready: ".fleet-name" },
    { name: "explore-flame", link: { ...explore, g: "pod", tm: "stacked" }, ready: ".flame-path" },
    { name: "explore-table", link: { ...explore, w: "table" }, ready: ".function-name" },
    {
      name: "explore-sandwich",
      link: { ...explore, w: "sandwich", fn: functionName },
      ready: ".sandwich-function",
    },
    { name: "explore-split", link: { ...explore, w: "table,flame" }, ready: ".flame-path" },
  ];
}

/** Lets the browser reach the server at the shown address. */
async function openContext(browser, theme) {
  const context = await browser.newContext({
    viewport: WINDOW_SIZE,
    colorScheme: theme,
    reducedMotion: "reduce",
    timezoneId: "UTC",
    locale: "en-US",
  });
  await context.route(`${SHOWN_URL}/**`, async (route) => {
    const request = route.request();
    const { pathname } = new URL(request.url());
    if (UI_DIST !== undefined && pathname.startsWith(UI_PATH)) {
      await route.fulfill({ path: join(UI_DIST, pathname.slice(UI_PATH.length) || "index.html") });
      return;
    }
    const url = request.url().replace(SHOWN_URL, SERVER_URL);
    // The server accepts calls of its own pages only.
    const headers = { ...request.headers(), origin: new URL(SERVER_URL).origin };
    await route.fulfill({ response: await route.fetch({ url, headers }) });
  });
  return context;
}

/** Waits until no panel is loading and the frames of the last change are drawn. */
async function waitForResults(page, ready) {
  await page.locator(ready).first().waitFor();
  await page.waitForFunction(() => document.querySelector('[aria-busy="true"]') === null);
  await page.evaluate(() => document.fonts.ready);
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

async function openPage(context, link, ready) {
  const page = await context.newPage();
  await page.goto(`${SHOWN_URL}/ui/?${new URLSearchParams(link)}`);
  await waitForResults(page, ready);
  return page;
}

/** Returns the first service of the fleet and one of its heavy functions. */
async function chooseSubject(browser) {
  const context = await openContext(browser, "light");
  const fleet = await openPage(context, { v: "1" }, ".fleet-name");
  const service = await fleet.locator(".fleet-name").first().textContent();
  const link = {
    v: "1",
    p: "explore",
    q: `{service_name=${JSON.stringify(service)}}`,
    w: "table",
    o: "total",
  };
  const table = await openPage(context, link, ".function-name");
  const functionName = await table.locator(".function-name").nth(SANDWICH_ROW).textContent();
  await context.close();
  return { service, functionName };
}

async function takeImage(browser, { name, link, ready, isEmpty }, theme) {
  const context = await openContext(browser, theme);
  // A server without profiles returns an empty message.
  if (isEmpty === true) await context.route(STATS_METHOD, (route) => route.fulfill({ json: {} }));
  const page = await openPage(context, link, ready);
  const path = join(IMAGE_FOLDER, `${name}-${theme}.png`);
  await page.screenshot({ path, animations: "disabled", caret: "hide" });
  await context.close();
  console.log(path);
}

mkdirSync(IMAGE_FOLDER, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env["PLAYWRIGHT_CHROMIUM"] ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
for (const page of listPages(await chooseSubject(browser))) {
  for (const theme of THEMES) await takeImage(browser, page, theme);
}
await browser.close();
