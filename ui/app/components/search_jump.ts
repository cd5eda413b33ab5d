// Way from the search field back to a view: the focus, and the match to which the view jumps.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/** Elements that take the keys of a view. A graph is preferred, since the search marks its frames. */
const VIEW_SELECTORS = ['[role="application"], [role="treegrid"]', '[role="grid"]', "button"];

/** Jump that the search field requested and no view has made yet. */
interface RequestedJump {
  readonly search: string;
  readonly step: 1 | -1;
  /** View that jumps. */
  readonly element: HTMLElement;
}

const requestedJump = signal<RequestedJump | undefined>(undefined);

/** Moves the focus to the view in a pane, or in any pane. Returns its element. */
export function focusView(pane: Element | null): HTMLElement | undefined {
  const root = pane?.isConnected === true ? pane : document.querySelector(".explore-views");
  for (const selector of VIEW_SELECTORS) {
    const element = root?.querySelector<HTMLElement>(selector);
    if (element === null || element === undefined) continue;
    element.focus({ preventScroll: true });
    return element;
  }
  return undefined;
}

/** Requests that a view jumps as soon as it has the matches of a search. */
export function requestJump(jump: RequestedJump): void {
  requestedJump.value = jump;
}

/** Jumps when the search field requests it. `matchedSearch` is the search whose matches the view has. */
export function useRequestedJump(
  element: { readonly current: HTMLElement | null },
  matchedSearch: string | undefined,
  jump: (step: 1 | -1) => void,
): void {
  const requested = requestedJump.value;
  useEffect(() => {
    if (requested === undefined || requested.element !== element.current) return;
    if (requested.search !== matchedSearch) return;
    requestedJump.value = undefined;
    jump(requested.step);
  }, [requested, matchedSearch]);
}
