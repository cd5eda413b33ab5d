// Bench of drawing in Chromium: builds a page of its own, serves it on loopback, and prints its times.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { build } from "vite";
import { launchBrowser, SOURCE_FOLDER } from "./browser.mjs";
import { median, percentile, report, reportPart } from "./report";

const WINDOW_SIZE = { width: 1_640, height: 940 };
const CONTENT_TYPES = { html: "text/html", js: "text/javascript", css: "text/css" };
const SIZES = [
  { nodes: 100_000, title: "100 000 nodes", goals: { decode: 8, firstDraw: 30, zoom: 16 } },
  { nodes: 1_000_000, title: "1 000 000 nodes", goals: { firstPicture: 250, refine: 150, zoom: 16 } },
];

async function buildPage(folder) {
  writeFileSync(
    join(folder, "index.html"),
    '<!doctype html><title>bench</title><script type="module" src="./draw_page.ts"></script>',
  );
  writeFileSync(
    join(folder, "draw_page.ts"),
    `import ${JSON.stringify(join(SOURCE_FOLDER, "draw_page.ts"))};\n`,
  );
  await build({
    configFile: false,
    root: folder,
    base: "./",
    logLevel: "error",
    build: { outDir: join(folder, "dist"), target: "es2022" },
    worker: { format: "es" },
  });
  return join(folder, "dist");
}

function serve(folder) {
  const server = createServer((request, response) => {
    const path = request.url === "/" ? "/index.html" : request.url;
    try {
      const body = readFileSync(join(folder, path));
      response.writeHead(200, { "content-type": CONTENT_TYPES[path.split(".").pop()] ?? "text/plain" });
      response.end(body);
    } catch {
      response.writeHead(404);
      response.end();
    }
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}

function reportSize({ title, goals }, times) {
  reportPart(`${title} at 1600×900 in Chromium`);
  const line = (name, measured, goal, note, floor) =>
    report({ name, measured, unit: "ms", goal, floor, note });
  line(
    "decode, fastest",
    Math.min(...times.decode),
    goals.decode,
    `median ${median(times.decode).toFixed(1)}`,
  );
  const floor = median(times.drawFloor);
  const slowest = `slowest ${Math.max(...times.firstDraw).toFixed(1)}; floor: as many rectangles`;
  line("first draw, median", median(times.firstDraw), goals.firstDraw, slowest, floor);
  const fastest = `fastest ${Math.min(...times.firstPicture).toFixed(0)}; from bytes, through the worker`;
  line("first picture, median", median(times.firstPicture), goals.firstPicture, fastest);
  line(
    "zoom, p95",
    percentile(times.zoom, 0.95),
    goals.zoom,
    `median ${median(times.zoom).toFixed(1)}`,
    floor,
  );
  line("refined by 20 000 fetched nodes, median", median(times.refine), goals.refine, "");
}

const folder = mkdtempSync(join(SOURCE_FOLDER, "../node_modules/.bench-page-"));
const browser = await launchBrowser();
let server;
try {
  server = await serve(await buildPage(folder));
  for (const size of SIZES) {
    const page = await browser.newPage({ viewport: WINDOW_SIZE });
    page.on("pageerror", (error) => console.error(error));
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await page.waitForFunction(() => globalThis.measureDraws !== undefined);
    reportSize(size, await page.evaluate((nodes) => globalThis.measureDraws(nodes), size.nodes));
    await page.close();
  }
} finally {
  await browser.close();
  server?.close();
  rmSync(folder, { recursive: true, force: true });
}
