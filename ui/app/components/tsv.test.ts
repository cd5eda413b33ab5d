// Tests of tab-separated text.

import { expect, test } from "vitest";
import { toTsv } from "./tsv";

test("rows_become_lines_with_tabs", () => {
  expect(
    toTsv(
      ["flat", "name"],
      [
        ["9007199254740993", "main.run"],
        ["1", ""],
      ],
    ),
  ).toBe("flat\tname\n9007199254740993\tmain.run\n1\t\n");
});

test("tabs_and_line_breaks_in_names_keep_the_columns", () => {
  expect(toTsv(["a", "b"], [["x\ty\r\nz", "1"]])).toBe("a\tb\nx y z\t1\n");
});
