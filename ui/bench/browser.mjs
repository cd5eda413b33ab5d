// Chromium of the benches.

import { join } from "node:path";
import { chromium } from "@playwright/test";

/** Folder of the benches. Benches run in `ui`, as bundles of another folder. */
export const SOURCE_FOLDER = join(process.cwd(), "bench");

export function launchBrowser() {
  return chromium.launch({
    executablePath: process.env["PLAYWRIGHT_CHROMIUM"] ?? "/usr/bin/chromium",
    args: ["--no-sandbox"],
  });
}
