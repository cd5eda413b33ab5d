// Button that opens a panel below it. Escape, a click elsewhere and leaving by Tab close the panel.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "./popover.css";

interface PopoverProps {
  readonly label: ComponentChildren;
  /** Name for screen readers, if the label is an icon. */
  readonly title?: string;
  readonly buttonClass?: string;
  readonly align?: "left" | "right";
  readonly children: ComponentChildren;
}

export function Popover({ label, title, buttonClass, align, children }: PopoverProps) {
  const [isOpen, setOpen] = useState(false);
  const frame = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const closeOutside = (event: Event) => {
      if (!frame.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", closeOutside);
    document.addEventListener("focusin", closeOutside);
    return () => {
      document.removeEventListener("pointerdown", closeOutside);
      document.removeEventListener("focusin", closeOutside);
    };
  }, [isOpen]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !isOpen) return;
    event.stopPropagation();
    setOpen(false);
    button.current?.focus();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: Escape works from every element within.
    <div class="popover" ref={frame} onKeyDown={onKeyDown}>
      <button
        type="button"
        class={buttonClass ?? "tool-button"}
        ref={button}
        aria-expanded={isOpen}
        title={title}
        aria-label={title}
        onClick={() => setOpen(!isOpen)}
      >
        {label}
      </button>
      {isOpen ? <div class={`popover-panel is-${align ?? "right"}`}>{children}</div> : null}
    </div>
  );
}
