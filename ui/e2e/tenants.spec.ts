// List of the tenants: its request, and the hint of one that lacks some.
import { expect, linkTo, test } from "./support/fixtures";

test("truncated list of tenants has a hint, and others can be typed", async ({ page, startOwnSite }) => {
  const site = await startOwnSite({ needsProxy: true });
  if (site.proxy === undefined) throw new Error("the site has no proxy");
  const tenants: unknown[] = [];
  site.proxy.replace = (path, headers) => {
    if (path !== "/athanor/tenants") return undefined;
    tenants.push(headers["x-scope-orgid"]);
    const body = JSON.stringify({ tenants: ["team-one", "team-two"], truncated: true });
    return { status: 200, headers: { "content-type": "application/json" }, body };
  };
  await page.goto(linkTo(site.url, { t: "team-one" }));
  const select = page.getByRole("combobox", { name: "Tenant" });
  const hint = "The list has the first 2 tenants. Others can be typed.";
  await expect(select.locator("option")).toHaveText(["team-one", "team-two", hint, "Other…"]);
  await select.selectOption("Other…");
  const dialog = page.getByRole("dialog", { name: "Tenant and token" });
  const field = dialog.getByRole("combobox", { name: "Tenant" });
  await expect(field).toHaveAccessibleDescription(hint);
  await field.fill("team-three");
  await dialog.getByRole("button", { name: "Apply" }).click();
  await expect(select).toHaveValue("team-three");
  // A tenant in the request would limit the list to that tenant.
  expect(new Set(tenants)).toEqual(new Set([undefined]));
});
