// Profiles of real programs: graph and table show what the API returns. Skipped where the files are missing.
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { shellQuote } from "../app/components/request_commands";
import { formatValue } from "../app/theme/format";
import { callApi, pushFile } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { fetchFlame, flamePanel } from "./support/flame";
import { runShell } from "./support/shell_command";
import { CPU_TYPE } from "./support/shop";
import { readTable } from "./support/table";

const PROFILES = resolve(process.env["ATHANOR_SHARED_DATA"] ?? "../../shared/data", "pprof");
const HOUR_MS = 3_600_000;
const FILES = [
  "go-cpu-labels.pb.gz",
  "go-heap.pb.gz",
  "java.pb.gz",
  "nodejs-wall.pb.gz",
  "python.pb.gz",
  "rust.pb.gz",
];

/** Exit status of a shell whose command does not exist. */
const COMMAND_NOT_FOUND = 127;

async function isGoInstalled(): Promise<boolean> {
  try {
    await runShell("go version");
    return true;
  } catch (error) {
    if ((error as { readonly code?: unknown }).code === COMMAND_NOT_FOUND) return false;
    throw error;
  }
}

/** Prints the reason before the test is skipped. */
function skipTest(reason: string): void {
  console.log(`skip: ${reason}`);
  test.skip(true, reason);
}

function skipWithout(path: string): void {
  if (!existsSync(PROFILES)) skipTest("no corpus of real profiles at ../shared/data/pprof");
  if (!existsSync(path)) skipTest(`${path} is missing`);
}

/** Returns self value and total of each function, as `go tool pprof -top` prints them in nanoseconds. */
async function readPprofTop(path: string): Promise<Map<string, readonly [flat: string, cum: string]>> {
  const flags = "-top -unit=ns -nodecount=100000 -nodefraction=0 -symbolize=none";
  const output = await runShell(`go tool pprof ${flags} ${shellQuote(path)}`);
  const rows = output.matchAll(
    /^ *(\d+)(?:ns)? +\S+% +\S+% +(\d+)(?:ns)? +\S+% +(.+?)(?: \((?:partial-)?inline\))?$/gm,
  );
  return new Map([...rows].map(([, flat = "", cum = "", name = ""]) => [name, [flat, cum] as const]));
}

test("copied table equals go tool pprof -top", async ({ page, startOwnSite }) => {
  const path = join(PROFILES, "go-cpu-labels.pb.gz");
  skipWithout(path);
  if (!(await isGoInstalled())) skipTest("go is not installed");
  const expected = await readPprofTop(path);
  expect(expected.size).toBeGreaterThan(0);
  const { api, url } = await startOwnSite();
  await pushFile(api, await readFile(path), { name: "real", fromMs: Date.now(), extra: { format: "pprof" } });
  const { newestProfileTime } = await callApi(api, "querier.v1.QuerierService/GetProfileStats", {});
  const hour = Math.floor(Number(newestProfileTime) / HOUR_MS) * HOUR_MS;
  const range = { f: String(hour), u: String(hour + 2 * HOUR_MS) };
  await page.goto(linkTo(url, { p: "explore", y: CPU_TYPE, w: "table", ...range }));
  await page.getByRole("button", { name: "Copy as TSV" }).click();
  await expect(page.getByText(/Copied \d+ rows/)).toBeVisible();
  const lines = (await page.evaluate(() => navigator.clipboard.readText())).trimEnd().split("\n").slice(1);
  const rows = lines.map((line) => line.split("\t"));
  const shown = new Map(rows.map((cells) => [cells[5] ?? "", [cells[0], cells[3]]]));
  expect(shown.size).toBe(rows.length);
  expect([...shown].sort()).toEqual([...expected].sort());
});

for (const file of FILES) {
  const path = join(PROFILES, file);
  test(`profile ${file} equals the API`, async ({ page, startOwnSite }) => {
    skipWithout(path);
    const { api, url } = await startOwnSite();
    const push = { name: "real", fromMs: Date.now(), extra: { format: "pprof" } };
    await pushFile(api, await readFile(path), push);
    // A file has its own time.
    const { newestProfileTime } = await callApi(api, "querier.v1.QuerierService/GetProfileStats", {});
    const hour = Math.floor(Number(newestProfileTime) / HOUR_MS) * HOUR_MS;
    const range = { start: String(hour), end: String(hour + 2 * HOUR_MS) };
    const { profileTypes } = await callApi(api, "querier.v1.QuerierService/ProfileTypes", range);
    for (const { ID } of profileTypes) {
      const query = { profileType: ID, selector: "{}", ...range };
      const { response, nodes } = await fetchFlame(api, { query });
      const view = { p: "explore", y: ID, f: range.start, u: range.end, w: "icicle,table" };
      await page.goto(linkTo(url, view));
      const panel = flamePanel(page, "icicle");
      await panel.ready();
      const total = formatValue(BigInt(response.total ?? 0), response.unit);
      await expect(panel.summary).toContainText(total);
      const frames = nodes.length.toLocaleString("en").replaceAll(",", "\u202f");
      await expect(panel.summary).toContainText(`${frames} frames`);
      const request = { query, page: { limit: 10_000 } };
      const { rows, unit } = await callApi(api, "athanor.v1.ExploreService/Functions", request);
      const grid = page.getByRole("grid", { name: "Functions" });
      await expect(grid).toHaveAttribute("aria-rowcount", String(rows.length + 1));
      for (const [index, row] of (await readTable(grid)).entries()) {
        expect([row["flat"], row["cum"]]).toEqual([
          formatValue(BigInt(rows[index].self ?? 0), unit),
          formatValue(BigInt(rows[index].total ?? 0), unit),
        ]);
      }
    }
  });
}
