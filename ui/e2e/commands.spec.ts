// Commands that each panel offers: they run, and print what the page shows.
import type { Locator, Page } from "@playwright/test";
import { formatValue } from "../app/theme/format";
import { callApi } from "./support/api";
import { expect, test } from "./support/fixtures";
import { flamePanel } from "./support/flame";
import { runShell } from "./support/shell_command";
import { functionsOf, totalOf } from "./support/shop";

/** Opens the commands of the last panel in a part of the page and returns their texts. */
async function readCommands(page: Page, part: Page | Locator) {
  await part.getByRole("button", { name: "Request as a command" }).last().click();
  const read = (kind: string) => page.locator(`[data-command="${kind}"]`).allInnerTexts();
  await expect(page.locator("[data-command]").first()).toBeVisible();
  const commands = { curl: await read("curl"), athanor: await read("athanor") };
  await page.keyboard.press("Escape");
  return commands;
}

/** Returns the method and the message of a `curl` command. */
function parseCurl(command: string): { method: string; message: unknown } {
  const message = /-d '([\s\S]*?)' \\\n/.exec(command)?.[1]?.replaceAll("'\\''", "'") ?? "";
  return {
    method: command.trim().split("/").slice(-2).join("/").replace(/'$/, ""),
    message: JSON.parse(message),
  };
}

/** Runs all `curl` commands. Each response equals that of the test's own call. */
async function runCurls(commands: readonly string[], api: string): Promise<unknown[]> {
  const responses: unknown[] = [];
  for (const command of commands) {
    const response = JSON.parse(await runShell(command));
    const { method, message } = parseCurl(command);
    expect(response).toEqual(await callApi(api, method, message));
    responses.push(response);
  }
  return responses;
}

test("commands of the fleet print its numbers", async ({ openShop, shopSite }) => {
  const page = await openShop({ p: "fleet", q: "{}" });
  await expect(page.getByRole("row", { name: /checkout/ })).toBeVisible();
  const { curl, athanor } = await readCommands(page, page);
  expect(curl).toHaveLength(3);
  await runCurls(curl, shopSite.api);
  expect(athanor).toHaveLength(1);
  const output = await runShell(`${athanor[0]} --json`);
  expect(JSON.stringify(JSON.parse(output))).toContain("checkout");
});

test("commands of the timeline print its series", async ({ openShop, shopSite }) => {
  const page = await openShop({ g: "pod" });
  await expect(page.getByRole("list", { name: "Values of pod" }).getByRole("listitem")).toHaveCount(3);
  const { curl, athanor } = await readCommands(page, page.locator(".timeline"));
  expect(curl).toHaveLength(2);
  await runCurls(curl, shopSite.api);
  const output = await runShell(`${athanor[0]} --json`);
  for (const pod of ["checkout-a", "checkout-b", "checkout-c"]) expect(output).toContain(pod);
});

test("commands of the graph print its total", async ({ openShop, shopSite }) => {
  const transforms = ["hide=encoding/json.Marshal", "ignore~^runtime\\."];
  const page = await openShop({ w: "icicle", x: transforms });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const left = shopSite.shop.checkout
    .map(({ names, value }) => ({ names: names.filter((name) => name !== "encoding/json.Marshal"), value }))
    .filter(({ names }) => !names.some((name) => /^runtime\./.test(name)));
  const total = totalOf(left);
  await expect(panel.summary).toContainText(formatValue(total, "nanoseconds"));
  const { curl, athanor } = await readCommands(page, page.locator(".explore-toolbar"));
  const [graph] = await runCurls(curl, shopSite.api);
  expect((graph as { total: string }).total).toBe(total.toString());
  const output = JSON.parse(await runShell(`${athanor[0]} --json`));
  expect(JSON.stringify(output)).toContain(total.toString());
});

test("commands of the table print its rows", async ({ openShop, shopSite }) => {
  const page = await openShop({ w: "table" });
  await expect(page.getByRole("row", { name: /json\.Marshal/ })).toBeVisible();
  const { curl, athanor } = await readCommands(page, page.locator(".explore-toolbar"));
  const [functions] = await runCurls(curl, shopSite.api);
  const expected = functionsOf(shopSite.shop.checkout);
  expect((functions as { rows: unknown[] }).rows).toHaveLength(expected.size);
  const output = JSON.stringify(JSON.parse(await runShell(`${athanor[0]} --json`)));
  for (const [name, { self, total }] of expected) {
    expect(output).toContain(JSON.stringify(name));
    expect(output).toContain(total.toString());
    expect(output).toContain(self.toString());
  }
});

test("commands of the sandwich print its totals", async ({ openShop, shopSite }) => {
  const name = "encoding/json.Marshal";
  const page = await openShop({ w: "sandwich", fn: name });
  await expect(page.locator(".sandwich-function")).toContainText(name);
  const { curl, athanor } = await readCommands(page, page.locator(".explore-toolbar"));
  const [sandwich] = await runCurls(curl, shopSite.api);
  const { self, total } = functionsOf(shopSite.shop.checkout).get(name) ?? { self: 0n, total: 0n };
  expect(sandwich).toMatchObject({ self: self.toString(), total: total.toString() });
  const output = await runShell(`${athanor[0]} --json`);
  expect(output).toContain(total.toString());
});

test("exports select profiles, spans and traces as the view does", async ({ openShop }) => {
  const profile = "11111111-2222-4333-8444-55555555555a";
  const page = await openShop({ w: "icicle", id: profile, sp: "00000000000000a1" });
  await page.getByRole("button", { name: "Save the query as a file" }).click();
  const href = await page.getByRole("link", { name: "pprof" }).getAttribute("href");
  const { searchParams } = new URL(href ?? "");
  expect([searchParams.getAll("profileId"), searchParams.getAll("spanId")]).toEqual([
    [profile],
    ["00000000000000a1"],
  ]);
});

test("exports of the query are the files of the API", async ({ openShop, shopSite }) => {
  const page = await openShop({ w: "icicle", x: "focus=encoding/json.Marshal" });
  await flamePanel(page, "icicle").ready();
  await page.getByRole("button", { name: "Save the query as a file" }).click();
  const href = await page.getByRole("link", { name: "Folded stacks" }).getAttribute("href");
  const text = await (await fetch(href ?? "")).text();
  const sum = text
    .trim()
    .split("\n")
    .reduce((total, line) => total + BigInt(line.slice(line.lastIndexOf(" ") + 1)), 0n);
  const focused = shopSite.shop.checkout.filter(({ names }) => names.includes("encoding/json.Marshal"));
  expect(sum).toBe(totalOf(focused));
});
