// Command palette: any service, function, page and action by a few letters.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { Dialog } from "./dialog";
import {
  actionItems,
  filterItems,
  functionItems,
  type PaletteItem,
  pageItems,
  serviceItems,
} from "./palette_items";

/** State of the palette: closed, open, or open with pages only. */
export const paletteMode = signal<"closed" | "all" | "pages">("closed");

const LOAD_DELAY_MS = 80;

export function CommandPalette() {
  const mode = paletteMode.value;
  if (mode === "closed") return null;
  const close = () => {
    paletteMode.value = "closed";
  };
  return (
    <Dialog title="Command palette" class="palette" isTitleHidden close={close}>
      <PaletteList isPagesOnly={mode === "pages"} close={close} />
    </Dialog>
  );
}

/** Loads services and functions for a text. Each list appears as soon as it is there. */
function useLoadedItems(text: string, isEnabled: boolean) {
  const [services, setServices] = useState<readonly PaletteItem[]>([]);
  const [functions, setFunctions] = useState<readonly PaletteItem[]>([]);
  useEffect(() => {
    if (!isEnabled) return;
    const controller = new AbortController();
    // Lists are an aid. Errors of the server appear on the page.
    const show = (items: Promise<readonly PaletteItem[]>, set: (items: readonly PaletteItem[]) => void) =>
      items.then(
        (loaded) => !controller.signal.aborted && set(loaded),
        () => !controller.signal.aborted && set([]),
      );
    const timer = setTimeout(() => {
      void show(serviceItems(text, controller.signal), setServices);
      void show(functionItems(text, controller.signal), setFunctions);
    }, LOAD_DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [text, isEnabled]);
  return { services, functions };
}

function PaletteList({ isPagesOnly, close }: { readonly isPagesOnly: boolean; readonly close: () => void }) {
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const { services, functions } = useLoadedItems(text, !isPagesOnly);
  const pages = filterItems(pageItems(), text);
  const items = isPagesOnly
    ? pages
    : [
        ...filterItems(services, text),
        ...pages,
        ...filterItems(functions, text),
        ...filterItems(actionItems(), text),
      ];
  const index = Math.min(active, items.length - 1);
  const run = (item: PaletteItem | undefined) => {
    if (item === undefined) return;
    close();
    item.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setActive((index + 1) % Math.max(items.length, 1));
    else if (event.key === "ArrowUp") setActive((index - 1 + items.length) % Math.max(items.length, 1));
    else if (event.key === "Enter") run(items[index]);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <input
        class="palette-input"
        type="text"
        role="combobox"
        aria-label={isPagesOnly ? "Go to page" : "Service, function, page or action"}
        placeholder={isPagesOnly ? "Go to page" : "Service, function, page or action"}
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={items.length > 0 ? `palette-${index}` : undefined}
        autocomplete="off"
        spellcheck={false}
        autofocus
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setActive(0);
        }}
        onKeyDown={onKeyDown}
      />
      <PaletteOptions items={items} index={index} run={run} />
    </>
  );
}

interface PaletteOptionsProps {
  readonly items: readonly PaletteItem[];
  readonly index: number;
  readonly run: (item: PaletteItem) => void;
}

function PaletteOptions({ items, index, run }: PaletteOptionsProps) {
  const activeOption = useRef<HTMLDivElement>(null);
  useEffect(() => activeOption.current?.scrollIntoView({ block: "nearest" }), [index]);
  return (
    <div class="palette-list" id="palette-list" role="listbox" aria-label="Matches" tabIndex={-1}>
      {items.map((item, place) => (
        // biome-ignore lint/a11y/useKeyWithClickEvents: the field handles the keys of its list
        <div
          key={`${item.kind} ${item.title}`}
          id={`palette-${place}`}
          ref={place === index ? activeOption : null}
          class="option"
          role="option"
          tabIndex={-1}
          aria-selected={place === index}
          onMouseDown={(event) => event.preventDefault()}
          onClick={() => run(item)}
        >
          <span class="option-text">{item.title === "" ? "(empty)" : item.title}</span>
          <span class="option-count">{item.kind}</span>
        </div>
      ))}
      {items.length === 0 && <div class="option-more">Nothing matches.</div>}
    </div>
  );
}
