// Tables as tab-separated text, for the clipboard.

/** Returns rows as tab-separated lines. Tabs and line breaks in a cell become spaces, so that columns stay aligned. */
export function toTsv(header: readonly string[], rows: Iterable<readonly string[]>): string {
  const lines = [tsvLine(header)];
  for (const row of rows) lines.push(tsvLine(row));
  return `${lines.join("\n")}\n`;
}

function tsvLine(cells: readonly string[]): string {
  return cells.map((cell) => cell.replace(/[\t\r\n]+/g, " ")).join("\t");
}

/** Copies text to the clipboard. Returns false if the browser refuses. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages without TLS have no clipboard interface.
    return copyBySelection(text);
  }
}

function copyBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.setAttribute("aria-hidden", "true");
  area.style.position = "fixed";
  area.style.opacity = "0";
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return copied;
}
