// Modal dialog. Escape and a click beside it close it.
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";

interface DialogProps {
  readonly title: string;
  readonly close: () => void;
  readonly class?: string;
  /** Whether the title is only for screen readers. */
  readonly isTitleHidden?: boolean;
  readonly children: ComponentChildren;
}

export function Dialog({ title, close, class: extraClass, isTitleHidden, children }: DialogProps) {
  const id = useId();
  const dialog = useRef<HTMLDialogElement>(null);
  // Before the next event: keys typed right after the one that opens it are for the dialog.
  useLayoutEffect(() => {
    const element = dialog.current;
    const focused = document.activeElement;
    if (element?.open === false) element.showModal();
    return () => {
      element?.close();
      if (focused instanceof HTMLElement) focused.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={`dialog ${extraClass ?? ""}`}
      aria-labelledby={id}
      onKeyDown={(event) => event.stopPropagation()}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => {
        if (event.target === dialog.current) close();
      }}
    >
      <div class="dialog-content">
        <header class={isTitleHidden === true ? "visually-hidden" : "dialog-header"}>
          <h2 id={id}>{title}</h2>
          {isTitleHidden !== true && (
            <button type="button" class="button is-plain is-icon" aria-label="Close" onClick={close}>
              ×
            </button>
          )}
        </header>
        {children}
      </div>
    </dialog>
  );
}
