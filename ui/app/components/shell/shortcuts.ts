// Keys that work on every page.
import { isHelpOpen } from "../help";
import { paletteMode } from "./palette";
import { shiftRange } from "./time_actions";

/** Returns whether a key belongs to the element that has the focus. */
export function isTyping(event: KeyboardEvent): boolean {
  const { target } = event;
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Focuses the search field of the page. Returns whether there is one. */
function focusSearch(): boolean {
  const field = document.querySelector<HTMLInputElement>("[data-search-field]");
  field?.focus();
  field?.select();
  return field !== null;
}

function runShortcut(event: KeyboardEvent): boolean {
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey) {
    paletteMode.value = paletteMode.peek() === "closed" ? "all" : "closed";
    return true;
  }
  if (!isPlain || isTyping(event) || document.querySelector("dialog[open]") !== null) return false;
  if (event.key === "?") isHelpOpen.value = true;
  else if (event.key === "g") paletteMode.value = "pages";
  else if (event.key === "[") shiftRange(-1);
  else if (event.key === "]") shiftRange(1);
  else if (event.key === "/") return focusSearch();
  else return false;
  return true;
}

export function startShortcuts(): void {
  document.addEventListener("keydown", (event) => {
    if (!event.defaultPrevented && runShortcut(event)) event.preventDefault();
  });
}
