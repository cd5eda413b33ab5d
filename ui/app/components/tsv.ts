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
