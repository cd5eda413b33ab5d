// Field for the name of a label. Names are loaded when the field gets the focus.

import { useEffect, useId, useState } from "preact/hooks";
import { call } from "../api/client";
import { timeRangeOf } from "../url/query_of";
import { view } from "../url/store";
import { currentTenant } from "../url/tenant";
import "./tools.css";

/** Maximum number of suggested names. */
const MAX_SUGGESTIONS = 200;

interface LabelInputProps {
  readonly label: string;
  readonly placeholder: string;
  readonly value: string;
  readonly onChange: (name: string) => void;
}

export function LabelInput({ label, placeholder, value, onChange }: LabelInputProps) {
  const listId = useId();
  const [names, setNames] = useState<readonly string[]>([]);
  // Text that is being typed. Names that arrive meanwhile must not replace it.
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => setNames([]), [currentTenant.value]);
  const commit = (typed: string) => {
    const name = typed.trim();
    setText(name);
    onChange(name);
  };
  const load = async () => {
    const { selector } = view.peek();
    const { start, end } = timeRangeOf(view.peek());
    try {
      const { message } = await call("querier.v1.QuerierService/LabelNames", {
        matchers: [selector],
        start: String(start),
        end: String(end),
        limit: String(MAX_SUGGESTIONS),
      });
      setNames((message.names ?? []).filter((name) => !name.startsWith("__")));
    } catch {
      // Suggestions are an aid. The field accepts any name without them.
      setNames([]);
    }
  };
  return (
    <span class="label-input">
      <label>
        <span class="tool-label">{label}</span>
        <input
          type="text"
          list={listId}
          value={text}
          placeholder={placeholder}
          autocomplete="off"
          spellcheck={false}
          size={Math.max(10, Math.min(24, text.length + 2))}
          onFocus={load}
          onInput={(event) => setText(event.currentTarget.value)}
          onChange={(event) => commit(event.currentTarget.value)}
        />
      </label>
      {value === "" ? null : (
        <button type="button" class="tool-clear" aria-label={`Clear ${label}`} onClick={() => commit("")}>
          ×
        </button>
      )}
      <datalist id={listId}>
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </span>
  );
}
