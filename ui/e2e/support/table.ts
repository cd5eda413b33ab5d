// Reads virtualized tables. Only the rows in the document are read.
import type { Locator } from "@playwright/test";

/** Returns the visible cells of each row in order, by the titles of their columns. */
export async function readTable(table: Locator): Promise<Record<string, string>[]> {
  return table.evaluate((element) => {
    const titles = [...element.querySelectorAll('[role="columnheader"]')].map((header) =>
      (header.textContent ?? "").replace(/[▼▲]/g, "").trim(),
    );
    const rows = [...element.querySelectorAll<HTMLElement>('[role="row"][aria-rowindex]')]
      .filter((row) => row.getAttribute("aria-rowindex") !== "1")
      .sort((left, right) => Number(left.ariaRowIndex) - Number(right.ariaRowIndex));
    return rows.map((row) => {
      const cells = [...row.querySelectorAll('[role="gridcell"]')].map((cell) => cell.textContent ?? "");
      return Object.fromEntries(titles.map((title, index) => [title, cells[index] ?? ""]));
    });
  });
}
