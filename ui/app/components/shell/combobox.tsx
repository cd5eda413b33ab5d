// Text field with suggestions from the server.
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { formatValue } from "../../theme/format";

export interface Suggestion {
  readonly text: string;
  /** Number of profiles, if the server counted them. */
  readonly count?: bigint | undefined;
}

export interface SuggestionList {
  readonly items: readonly Suggestion[];
  /** Whether there are more than the list has. */
  readonly more: boolean;
}

interface ComboboxProps {
  readonly label: string;
  readonly value: string;
  readonly placeholder?: string;
  readonly autoFocus?: boolean;
  readonly suggest: (prefix: string, signal: AbortSignal) => Promise<SuggestionList>;
  readonly onInput: (value: string) => void;
  /** Called when a suggestion is chosen, or Enter is pressed without one. */
  readonly onCommit: (value: string, isSuggested: boolean) => void;
}

const SUGGEST_DELAY_MS = 60;
const NO_SUGGESTIONS: SuggestionList = { items: [], more: false };

/** List of the field, and whether it is that of the current text. */
interface LoadedList extends SuggestionList {
  readonly isLoaded: boolean;
}

/** Loads suggestions for the current text while the list is open. */
function useSuggestions(isOpen: boolean, value: string, suggest: ComboboxProps["suggest"]) {
  const [list, setList] = useState<LoadedList>({ ...NO_SUGGESTIONS, isLoaded: false });
  const latest = useRef(suggest);
  latest.current = suggest;
  useEffect(() => {
    if (!isOpen) return;
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const loaded = await latest.current(value, controller.signal);
        if (!controller.signal.aborted) setList({ ...loaded, isLoaded: true });
      } catch {
        // Suggestions are an aid. The field accepts any text without them.
        if (!controller.signal.aborted) setList({ ...NO_SUGGESTIONS, isLoaded: false });
      }
    }, SUGGEST_DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [isOpen, value]);
  return list;
}

export function Combobox({
  label,
  value,
  placeholder,
  autoFocus,
  suggest,
  onInput,
  onCommit,
}: ComboboxProps) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [isOpen, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const list = useSuggestions(isOpen, value, suggest);
  useLayoutEffect(() => {
    if (autoFocus === true) input.current?.focus();
  }, [autoFocus]);
  const commit = (text: string, isSuggested: boolean) => {
    setOpen(false);
    setActive(-1);
    onCommit(text, isSuggested);
  };
  const choose = (text: string) => commit(text, true);
  const move = (step: number) => {
    const count = list.items.length;
    setOpen(true);
    if (count > 0) setActive((active + step + (active < 0 && step < 0 ? 1 : 0) + count) % count);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const item = list.items[active];
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Enter") {
      if (isOpen && item !== undefined) choose(item.text);
      else commit(value, false);
    } else if (event.key === "Escape" && isOpen) setOpen(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const isListShown = isOpen && (list.items.length > 0 || list.isLoaded);
  return (
    <span class="combobox">
      <input
        ref={input}
        class="field"
        type="text"
        role="combobox"
        aria-label={label}
        aria-expanded={isListShown}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={
          isListShown && active >= 0 && active < list.items.length ? `${id}-${active}` : undefined
        }
        autocomplete="off"
        spellcheck={false}
        placeholder={placeholder}
        value={value}
        size={Math.max(12, Math.min(36, value.length + 2))}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onInput={(event) => {
          setOpen(true);
          setActive(-1);
          onInput(event.currentTarget.value);
        }}
        onKeyDown={onKeyDown}
      />
      {isListShown && <OptionList id={id} label={label} list={list} active={active} choose={choose} />}
    </span>
  );
}

interface OptionListProps {
  readonly id: string;
  readonly label: string;
  readonly list: SuggestionList;
  readonly active: number;
  readonly choose: (text: string) => void;
}

function OptionList({ id, label, list, active, choose }: OptionListProps) {
  const activeOption = useRef<HTMLDivElement>(null);
  useEffect(() => activeOption.current?.scrollIntoView({ block: "nearest" }), [active]);
  return (
    <div class="option-list" id={`${id}-list`} role="listbox" aria-label={label} tabIndex={-1}>
      {list.items.map((item, index) => (
        // biome-ignore lint/a11y/useKeyWithClickEvents: the field handles the keys of its list
        <div
          key={item.text}
          id={`${id}-${index}`}
          ref={index === active ? activeOption : null}
          role="option"
          tabIndex={-1}
          aria-selected={index === active}
          class="option"
          // The field keeps the focus.
          onMouseDown={(event) => event.preventDefault()}
          onClick={() => choose(item.text)}
        >
          <span class="option-text">{item.text === "" ? "(empty)" : item.text}</span>
          {item.count !== undefined && <span class="option-count">{formatValue(item.count, "count")}</span>}
        </div>
      ))}
      {list.items.length === 0 && <div class="option-more">None in this range and selection.</div>}
      {list.more && <div class="option-more">More match; type on.</div>}
    </div>
  );
}
