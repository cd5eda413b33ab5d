// The first minute: an empty server, the first profile, its flame graph.
import type { Page } from "@playwright/test";
import { pushFile } from "./support/api";
import { expect, test } from "./support/fixtures";
import { fetchFlame, flamePanel } from "./support/flame";
import { runShell } from "./support/shell_command";
import { CPU_TYPE } from "./support/shop";

/** Holds back the profile types of the range. Those of the whole time pass. */
async function holdTypes(page: Page): Promise<{ release(): Promise<void> }> {
  const path = "**/querier.v1.QuerierService/ProfileTypes";
  let release: () => void = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  await page.route(path, async (route) => {
    if (route.request().postDataJSON().start !== "1") await released;
    // The page may have aborted the call.
    await route.continue().catch(() => {});
  });
  return {
    release: async () => {
      release();
      await page.unroute(path);
    },
  };
}

test("first profile opens the fleet and one click shows its flame graph", async ({ page, startOwnSite }) => {
  const { url, api } = await startOwnSite();
  await page.goto(`${url}/`);
  await expect(page).toHaveURL(/\/ui\//);
  await expect(page.getByRole("heading", { name: "No profiles yet" })).toBeVisible();
  for (const language of ["curl", "perf", "Go", "Java", "Python", "Node", "Rust", "Ruby", ".NET"]) {
    await page.getByRole("tab", { name: language, exact: true }).click();
    await expect(page.getByRole("tabpanel").locator("pre")).toContainText(url);
  }
  await pushFile(api, "main;work 5\nmain;rest 3\n", { name: "first.cpu", fromMs: Date.now() - 10_000 });
  const pushed = Date.now();
  await expect(page.getByRole("row", { name: /first/ })).toBeVisible({ timeout: 4_000 });
  expect(Date.now() - pushed, "time from the first profile to the fleet").toBeLessThan(4_000);
  await page.getByRole("row", { name: /first/ }).click();
  const panel = flamePanel(page);
  await panel.ready();
  await expect(panel.summary).toContainText("4 frames");
  await expect(panel.summary).toContainText("80 ms");
});

test("profile of 1970 is stated, and the next one opens the fleet", async ({ page, startOwnSite }) => {
  const { url, api } = await startOwnSite();
  await page.goto(`${url}/ui/`);
  await expect(page.getByRole("heading", { name: "No profiles yet" })).toBeVisible();
  await pushFile(api, "main;work 5\n", { name: "undated.cpu", fromMs: 5_000 });
  const main = page.getByRole("main");
  await expect(main).toContainText("All stored profiles are dated before 2000");
  await expect(main.getByRole("button"), "no range is suggested").toHaveCount(0);
  await pushFile(api, "main;work 5\n", { name: "first.cpu", fromMs: Date.now() - 10_000 });
  await expect(page.getByRole("row", { name: /first/ })).toBeVisible();
});

test("page waits for the profile types before it states that none match", async ({ page, startOwnSite }) => {
  const { url, api } = await startOwnSite();
  await page.goto(`${url}/ui/`);
  await expect(page.getByRole("heading", { name: "No profiles yet" })).toBeVisible();
  const main = page.getByRole("main");
  const firstTypes = await holdTypes(page);
  await pushFile(api, "main;work 5\n", { name: "first.cpu", fromMs: Date.now() - 3 * 86_400_000 });
  await expect(main).toContainText("No profiles in this range");
  await expect(main.getByRole("button", { name: "Cancel" })).toBeVisible();
  await firstTypes.release();
  await expect(main.getByRole("button", { name: "Cancel" })).toHaveCount(0);
  const newestTypes = await holdTypes(page);
  await page.getByRole("button", { name: "Go to the newest data" }).click();
  await expect(main.getByRole("button", { name: "Cancel" })).toBeVisible();
  await expect(main.getByRole("heading")).toHaveCount(0);
  await newestTypes.release();
  await expect(page.getByRole("row", { name: /first/ })).toBeVisible();
});

test("first profile is never said not to match", async ({ page, startOwnSite }) => {
  const { url, api } = await startOwnSite();
  await page.goto(`${url}/ui/`);
  await expect(page.getByRole("heading", { name: "No profiles yet" })).toBeVisible();
  const main = page.getByRole("main");
  const types = await holdTypes(page);
  await pushFile(api, "main;work 5\n", { name: "first.cpu", fromMs: Date.now() - 10_000 });
  await expect(main.getByRole("button", { name: "Cancel" })).toBeVisible();
  await expect(main.getByRole("heading")).toHaveCount(0);
  await types.release();
  await expect(page.getByRole("row", { name: /first/ })).toBeVisible();
});

test("command for curl of the start page sends a profile", async ({ page, startOwnSite }) => {
  const { url, api } = await startOwnSite();
  await page.goto(`${url}/ui/`);
  await page.getByRole("tab", { name: "curl", exact: true }).click();
  const command = await page.getByRole("tabpanel").locator("pre").innerText();
  await runShell(command);
  await expect(page.getByRole("row", { name: /shop/ })).toBeVisible();
  const now = Date.now();
  const query = { profileType: CPU_TYPE, selector: "{}", start: String(now - 3_600_000), end: String(now) };
  const { nodes } = await fetchFlame(api, { query });
  expect(nodes.map(({ path }) => path.join(";"))).toContain("main;checkout;db.query");
});

test("root responds to browsers with a redirect and to other clients with 200", async ({ startOwnSite }) => {
  const { server } = await startOwnSite();
  const browser = await fetch(`${server.url}/`, { headers: { Accept: "text/html" }, redirect: "manual" });
  expect([browser.status, browser.headers.get("location")]).toEqual([307, "ui/"]);
  const client = await fetch(`${server.url}/`, { headers: { Accept: "*/*" }, redirect: "manual" });
  expect(client.status).toBe(200);
});
