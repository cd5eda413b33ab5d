// Menu that selects the columns of a table.

import type { Signal } from "@preact/signals";
import { Menu } from "./shell/menu";

interface PickerColumn {
  readonly key: string;
  readonly title: string;
  readonly isFixed?: boolean;
}

interface ColumnPickerProps {
  readonly columns: readonly PickerColumn[];
  readonly hidden: Signal<ReadonlySet<string>>;
}

export function ColumnPicker({ columns, hidden }: ColumnPickerProps) {
  const toggle = (key: string) => {
    const changed = new Set(hidden.value);
    if (!changed.delete(key)) changed.add(key);
    hidden.value = changed;
  };
  return (
    <Menu label="Columns" title="Select columns" class="is-plain tool-button" align="right">
      {() => (
        <fieldset class="column-picker">
          <legend>Shown columns</legend>
          {columns.map((column) => (
            <label key={column.key}>
              <input
                type="checkbox"
                checked={column.isFixed === true || !hidden.value.has(column.key)}
                disabled={column.isFixed === true}
                onChange={() => toggle(column.key)}
              />
              {column.title}
            </label>
          ))}
        </fieldset>
      )}
    </Menu>
  );
}
