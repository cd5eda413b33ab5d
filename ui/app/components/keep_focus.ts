// Focus of a pane whose content is replaced: the new content takes over the focus of the removed one.

import { useEffect } from "preact/hooks";

/** Elements that take the keys of a view. */
const VIEW_SELECTOR = '[role="application"], [role="grid"], [role="treegrid"]';
/** Buttons of states without a view, such as an empty selection or an error. */
const BUTTON_SELECTOR = ".query-panel-content button, .banner button";

/** Keeps the focus in a pane while its content changes. */
export function useKeptFocus(pane: { readonly current: HTMLElement | null }): void {
  useEffect(() => (pane.current === null ? undefined : keepFocus(pane.current)), [pane]);
}

/** Moves the focus of removed elements to the new content. The pane itself has it until there is some. */
function keepFocus(pane: HTMLElement): () => void {
  let focused: Element | undefined;
  let isWaiting = false;
  const moveFocus = () => {
    if (focused === undefined) return;
    const active = document.activeElement;
    const isLost = !focused.isConnected && (active === null || active === document.body);
    if (!isLost && !isWaiting) return;
    const target =
      pane.querySelector<HTMLElement>(VIEW_SELECTOR) ?? pane.querySelector<HTMLElement>(BUTTON_SELECTOR);
    if (target !== null) target.focus({ preventScroll: true });
    else if (!isWaiting) waitForContent();
  };
  const waitForContent = () => {
    pane.tabIndex = -1;
    pane.focus({ preventScroll: true });
    isWaiting = document.activeElement === pane;
  };
  const onFocusIn = (event: FocusEvent) => {
    focused = event.target as Element;
  };
  const onFocusOut = () => {
    if (isWaiting) pane.removeAttribute("tabindex");
    isWaiting = false;
    // A removed element loses the focus while it is still connected.
    queueMicrotask(() => {
      if (focused?.isConnected === true && document.activeElement !== focused) focused = undefined;
    });
  };
  const observer = new MutationObserver(moveFocus);
  observer.observe(pane, { childList: true, subtree: true });
  pane.addEventListener("focusin", onFocusIn);
  pane.addEventListener("focusout", onFocusOut);
  return () => {
    observer.disconnect();
    pane.removeEventListener("focusin", onFocusIn);
    pane.removeEventListener("focusout", onFocusOut);
  };
}
