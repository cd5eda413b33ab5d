// Selector of the view, as chips or as text.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../../api/client";
import { type ApiError, toApiError } from "../../api/errors";
import { liveQuery } from "../../api/live_query";
import { timeRangeOf } from "../../url/query_of";
import { formatMatcher, formatSelector, type LabelMatcher, parseSelector } from "../../url/selector";
import { navigate, view } from "../../url/store";
import { MatcherEditor } from "./matcher_editor";
import { UnderlinedInput } from "./underlined_input";
import "./selector_bar.css";

const isTextMode = signal(false);

/** Checks the selector of the view on the server, whose error names a position. */
const selectorCheck = liveQuery(
  () => view.value.selector,
  (selector, abortSignal) => checkSelector(selector, abortSignal),
);

async function checkSelector(selector: string, signal?: AbortSignal): Promise<true> {
  const { start, end } = timeRangeOf(view.peek());
  const range = { start: String(start), end: String(end) };
  await call(
    "querier.v1.QuerierService/LabelNames",
    { ...range, matchers: [selector], limit: "1" },
    { signal },
  );
  return true;
}

/** Opens a selector if the server accepts it. Returns its error otherwise. */
async function applySelector(selector: string): Promise<ApiError | undefined> {
  const text = selector.trim() === "" ? "{}" : selector;
  try {
    await checkSelector(text);
  } catch (thrown) {
    const error = toApiError(thrown);
    // Other failures say nothing about the selector. The page shows them.
    if (error.status === 400) return error;
  }
  navigate({ selector: text, zoomPath: [], selectedPath: [] });
  return undefined;
}

export function SelectorBar() {
  const { selector } = view.value;
  const matchers = parseSelector(selector);
  const checked = selectorCheck.state.value;
  const error = checked.kind === "failed" && checked.error?.status === 400 ? checked.error : undefined;
  const isText = isTextMode.value || matchers === undefined || error !== undefined;
  return (
    <search class="selector-bar" aria-label="Selector">
      {isText ? (
        <SelectorText key={selector} selector={selector} error={error} />
      ) : (
        <SelectorChips matchers={matchers} />
      )}
      <button
        type="button"
        class="button is-plain selector-mode"
        title={isText ? "Edit the selector as chips" : "Edit the selector as text"}
        disabled={matchers === undefined || error !== undefined}
        onClick={() => {
          isTextMode.value = !isTextMode.value;
        }}
      >
        {isText ? "As chips" : "As text"}
      </button>
    </search>
  );
}

interface SelectorTextProps {
  readonly selector: string;
  readonly error: ApiError | undefined;
}

function SelectorText({ selector, error }: SelectorTextProps) {
  const [text, setText] = useState(selector);
  const [rejection, setRejection] = useState(error);
  useEffect(() => setRejection(error), [error]);
  const apply = async () => setRejection(await applySelector(text));
  return (
    <UnderlinedInput
      label="Selector as text"
      value={text}
      placeholder={'{service_name="shop"}'}
      position={rejection?.position}
      message={rejection?.message}
      onInput={(value) => {
        setText(value);
        setRejection(undefined);
      }}
      onEnter={apply}
    />
  );
}

function SelectorChips({ matchers }: { readonly matchers: readonly LabelMatcher[] }) {
  const [editedIndex, setEditedIndex] = useState<number | undefined>(undefined);
  const [rejection, setRejection] = useState<ApiError | undefined>(undefined);
  const bar = useRef<HTMLDivElement>(null);
  const replace = async (index: number, matcher: LabelMatcher | undefined) => {
    const changed = matchers.flatMap((old, place) => (place === index ? (matcher ?? []) : old));
    if (index === matchers.length && matcher !== undefined) changed.push(matcher);
    const error = await applySelector(formatSelector(changed));
    setRejection(error);
    if (error === undefined) setEditedIndex(undefined);
  };
  const cancel = () => {
    setRejection(undefined);
    setEditedIndex(undefined);
    bar.current?.querySelector<HTMLButtonElement>(".chip-add")?.focus();
  };
  const editor = (index: number) => (
    <MatcherEditor
      key={index}
      matcher={matchers[index]}
      others={matchers.filter((_, place) => place !== index)}
      error={rejection}
      onApply={(matcher) => replace(index, matcher)}
      onCancel={cancel}
    />
  );
  return (
    <div class="chips" ref={bar}>
      {matchers.map((matcher, index) =>
        index === editedIndex ? (
          editor(index)
        ) : (
          <Chip
            key={index}
            matcher={matcher}
            edit={() => setEditedIndex(index)}
            remove={() => replace(index, undefined)}
          />
        ),
      )}
      {editedIndex === matchers.length ? (
        editor(matchers.length)
      ) : (
        <button
          type="button"
          class="button is-plain chip-add"
          onClick={() => setEditedIndex(matchers.length)}
        >
          + Label
        </button>
      )}
    </div>
  );
}

interface ChipProps {
  readonly matcher: LabelMatcher;
  readonly edit: () => void;
  readonly remove: () => void;
}

function Chip({ matcher, edit, remove }: ChipProps) {
  const text = formatMatcher(matcher);
  return (
    <span class="chip">
      <button type="button" class="chip-text" title={`Edit ${text}`} onClick={edit}>
        <span class="chip-name">{matcher.name}</span>
        <span class="chip-operator">{matcher.operator}</span>
        <bdi class="chip-value">{matcher.value === "" ? '""' : matcher.value}</bdi>
      </button>
      <button type="button" class="chip-remove" aria-label={`Remove ${text}`} onClick={remove}>
        ×
      </button>
    </span>
  );
}
