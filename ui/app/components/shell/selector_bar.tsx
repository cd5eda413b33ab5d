// Selector of the view, as chips or as text.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { call } from "../../api/client";
import { type ApiError, toApiError } from "../../api/errors";
import { liveQuery } from "../../api/live_query";
import { timeRangeOf } from "../../url/query_of";
import { formatMatcher, type LabelMatcher, parseSelector, replaceMatcher } from "../../url/selector";
import { navigate, view } from "../../url/store";
import { MatcherEditor } from "./matcher_editor";
import { UnderlinedInput, UnderlinedText } from "./underlined_input";
import "./selector_bar.css";

const isTextMode = signal(false);

/** Checks the selector of the view on the server, whose error names a position. */
export const selectorCheck = liveQuery(
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

/** Returns whether the server rejected the selector itself, and not another part of the request such as its tenant. */
function isSelectorError({ status, position, message }: ApiError): boolean {
  return status === 400 && (position !== undefined || /^(selector|regular expression)\b/.test(message));
}

/** Selector that the server checks before the view has it. */
interface PendingSelector {
  readonly selector: string;
  readonly controller: AbortController;
}

const pendingSelector = signal<PendingSelector | undefined>(undefined);

/** Parts of the view whose change makes a pending selector obsolete. */
const selectorPlace = computed(() => {
  const { page, tenant, selector } = view.value;
  return JSON.stringify([page, tenant, selector]);
});

effect(() => {
  selectorPlace.value;
  dropPending();
});

function dropPending(): void {
  pendingSelector.peek()?.controller.abort();
  pendingSelector.value = undefined;
}

interface SelectorRejection {
  readonly selector: string;
  readonly error: ApiError;
}

/** Result of a change: rejected by the server, opened, or replaced by a newer change or view. */
type ChangeResult = SelectorRejection | "opened" | "replaced";

/** Changes the selector if the server accepts it. A pending change is part of a newer one, and is aborted. */
async function changeSelector(change: (current: string) => string): Promise<ChangeResult> {
  const changed = change(pendingSelector.peek()?.selector ?? view.peek().selector);
  const selector = changed.trim() === "" ? "{}" : changed;
  dropPending();
  const controller = new AbortController();
  pendingSelector.value = { selector, controller };
  let error: ApiError | undefined;
  try {
    await checkSelector(selector, controller.signal);
  } catch (thrown) {
    error = toApiError(thrown);
  }
  if (controller.signal.aborted) return "replaced";
  dropPending();
  // Other failures say nothing about the selector. The page shows them.
  if (error !== undefined && isSelectorError(error)) return { selector, error };
  navigate({ selector, zoomPath: [], selectedPath: [] });
  return "opened";
}

export function SelectorBar() {
  const { selector } = view.value;
  const matchers = parseSelector(selector);
  const checked = selectorCheck.state.value;
  const failure = checked.kind === "failed" ? checked.error : undefined;
  const error = failure !== undefined && isSelectorError(failure) ? failure : undefined;
  const isText = isTextMode.value || matchers === undefined || error !== undefined;
  return (
    <search
      class={pendingSelector.value === undefined ? "selector-bar" : "selector-bar is-pending"}
      aria-label="Selector"
      aria-busy={pendingSelector.value !== undefined}
    >
      {isText ? <SelectorText selector={selector} error={error} /> : <SelectorChips matchers={matchers} />}
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
  useEffect(() => setText(selector), [selector]);
  useEffect(() => setRejection(error), [error]);
  const apply = async () => {
    const result = await changeSelector(() => text);
    if (result !== "replaced") setRejection(result === "opened" ? undefined : result.error);
  };
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

/** Moves the focus of a removed chip or editor to the button for a new label, so that keys do not fall to the page. */
function useRestoredFocus(selector: string, editedIndex: number | undefined) {
  const bar = useRef<HTMLDivElement>(null);
  const isRestored = useRef(false);
  useLayoutEffect(() => {
    if (editedIndex !== undefined) return;
    if (isRestored.current && document.activeElement === document.body)
      bar.current?.querySelector<HTMLButtonElement>(".chip-add")?.focus();
    isRestored.current = false;
  }, [selector, editedIndex]);
  const restoreFocus = () => {
    isRestored.current = true;
  };
  return { bar, restoreFocus };
}

function SelectorChips({ matchers }: { readonly matchers: readonly LabelMatcher[] }) {
  const [editedIndex, setEditedIndex] = useState<number | undefined>(undefined);
  const [rejection, setRejection] = useState<SelectorRejection | undefined>(undefined);
  const { selector } = view.value;
  const { bar, restoreFocus } = useRestoredFocus(selector, editedIndex);
  useEffect(() => setRejection(undefined), [selector]);
  const replace = async (old: LabelMatcher | undefined, next: LabelMatcher | undefined) => {
    restoreFocus();
    const result = await changeSelector((current) => replaceMatcher(current, old, next));
    if (result === "replaced") return;
    setRejection(result === "opened" ? undefined : result);
    if (result === "opened") setEditedIndex(undefined);
  };
  const cancel = () => {
    restoreFocus();
    setRejection(undefined);
    setEditedIndex(undefined);
  };
  const editor = (index: number) => (
    <MatcherEditor
      key={index}
      matcher={matchers[index]}
      others={matchers.filter((_, place) => place !== index)}
      onApply={(matcher) => replace(matchers[index], matcher)}
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
            remove={() => replace(matcher, undefined)}
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
      {rejection !== undefined && <RejectionText rejection={rejection} />}
    </div>
  );
}

/** Message of the server, and the rejected selector with the character that it names. */
function RejectionText({ rejection: { selector, error } }: { readonly rejection: SelectorRejection }) {
  return (
    <div class="selector-error chips-error" role="alert">
      {error.position !== undefined && (
        <code class="rejected-selector">
          <UnderlinedText text={selector} position={error.position} />
        </code>
      )}
      {error.message}
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
