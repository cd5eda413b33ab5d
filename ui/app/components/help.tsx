// List of all keys.
import { signal } from "@preact/signals";
import { Dialog } from "./shell/dialog";
import "./help.css";

/** Whether the list of keys is open. */
export const isHelpOpen = signal(false);

type KeyList = readonly (readonly [keys: string, meaning: string])[];

const KEY_GROUPS: readonly (readonly [title: string, keys: KeyList])[] = [
  [
    "Everywhere",
    [
      ["Ctrl K", "Command palette: services, functions, pages"],
      ["g", "Go to a page"],
      ["[ ]", "Earlier and later range"],
      ["/", "Search or filter"],
      ["Esc", "Close"],
      ["?", "This list"],
    ],
  ],
  [
    "Graph",
    [
      ["↑ ↓", "Heaviest callee and caller, as the graph shows them"],
      ["← →", "Siblings"],
      ["Home", "Root"],
      ["Enter", "Zoom to the selected frame"],
      ["Esc", "Back to the view before the zoom"],
      ["+ -", "Zoom in and out"],
      ["Ctrl wheel", "Zoom freely at the pointer"],
      ["drag", "Move a zoomed graph"],
      ["Shift F10", "Menu of the selected frame"],
      ["c", "Copy the name"],
    ],
  ],
  [
    "Stacks",
    [
      ["f", "Focus: only stacks with the function"],
      ["i", "Ignore: no stacks with the function"],
      ["h", "Hide the function"],
      ["s", "Show from the function"],
      ["n N", "Next and previous match of the search, in a graph or tree"],
      ["Enter", "In the search: to the next match in a graph or tree, with Shift to the previous"],
    ],
  ],
  [
    "Views",
    [
      ["1", "Flame graph"],
      ["2", "Icicle graph"],
      ["3", "Table"],
      ["4", "Tree"],
      ["5", "Sandwich"],
    ],
  ],
];

export function KeyboardHelp() {
  if (!isHelpOpen.value) return null;
  const close = () => {
    isHelpOpen.value = false;
  };
  return (
    <Dialog title="Keys" close={close}>
      <div class="key-groups">
        {KEY_GROUPS.map(([title, keys]) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {keys.map(([names, meaning]) => (
                <div key={names}>
                  <dt>
                    {names.split(" ").map((name) => (
                      <kbd key={name}>{name}</kbd>
                    ))}
                  </dt>
                  <dd>{meaning}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
