// Button with a panel below it that the panel's content can close.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface MenuProps {
  readonly label: ComponentChildren;
  /** Name for screen readers and tooltip. */
  readonly title: string;
  readonly class?: string;
  readonly align?: "left" | "right";
  readonly children: (close: () => void) => ComponentChildren;
}

export function Menu({ label, title, class: buttonClass, align, children }: MenuProps) {
  const [isOpen, setOpen] = useState(false);
  const frame = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const closeOutside = (event: Event) => {
      if (event.target instanceof Node && !frame.current?.contains(event.target)) setOpen(false);
    };
    document.addEventListener("pointerdown", closeOutside);
    document.addEventListener("focusin", closeOutside);
    return () => {
      document.removeEventListener("pointerdown", closeOutside);
      document.removeEventListener("focusin", closeOutside);
    };
  }, [isOpen]);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !isOpen) return;
    event.stopPropagation();
    close();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: Escape works from every element within
    <div class="menu" ref={frame} onKeyDown={onKeyDown}>
      <button
        type="button"
        class={`button ${buttonClass ?? ""}`}
        ref={button}
        aria-expanded={isOpen}
        aria-label={title}
        title={title}
        onClick={() => setOpen(!isOpen)}
      >
        {label}
      </button>
      {isOpen && <div class={`menu-panel is-${align ?? "left"}`}>{children(close)}</div>}
    </div>
  );
}
