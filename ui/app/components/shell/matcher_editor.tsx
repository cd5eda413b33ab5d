// Editor of one condition of a selector.
import { useRef, useState } from "preact/hooks";
import { type LabelMatcher, MATCH_OPERATORS, type MatchOperator } from "../../url/selector";
import { Combobox } from "./combobox";
import { suggestLabelNames, suggestLabelValues } from "./label_suggestions";

interface MatcherEditorProps {
  /** Condition to change; undefined for a new one. */
  readonly matcher: LabelMatcher | undefined;
  /** Other conditions of the selector, which narrow the suggestions. */
  readonly others: readonly LabelMatcher[];
  readonly onApply: (matcher: LabelMatcher) => void;
  readonly onCancel: () => void;
}

const OPERATOR_TITLES: Readonly<Record<MatchOperator, string>> = {
  "=": "equals",
  "!=": "differs from",
  "=~": "matches the regular expression",
  "!~": "does not match the regular expression",
};

const VALUE_LABEL = "Label value";

function focusValue(editor: HTMLElement | null): void {
  editor?.querySelector<HTMLInputElement>(`input[aria-label="${VALUE_LABEL}"]`)?.focus();
}

/** Returns whether Enter applies a value. An empty one matches profiles without the label, so it must be chosen. */
function isMeantValue(value: string, matcher: LabelMatcher | undefined): boolean {
  return value !== "" || matcher?.value === "";
}

export function MatcherEditor({ matcher, others, onApply, onCancel }: MatcherEditorProps) {
  const [name, setName] = useState(matcher?.name ?? "");
  const [operator, setOperator] = useState<MatchOperator>(matcher?.operator ?? "=");
  const [value, setValue] = useState(matcher?.value ?? "");
  const editor = useRef<HTMLSpanElement>(null);
  const [isValueMissing, setValueMissing] = useState(false);
  const changeValue = (text: string) => {
    setValue(text);
    setValueMissing(false);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    onCancel();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: Escape works from every field within
    <span class="matcher-editor" ref={editor} onKeyDown={onKeyDown}>
      <Combobox
        label="Label name"
        placeholder="label"
        value={name}
        autoFocus={matcher === undefined}
        suggest={(prefix, signal) => suggestLabelNames(others, prefix, signal)}
        onInput={setName}
        onCommit={(text) => {
          setName(text);
          if (text !== "") focusValue(editor.current);
        }}
      />
      <OperatorSelect operator={operator} onChange={setOperator} />
      <Combobox
        label={VALUE_LABEL}
        placeholder="value"
        value={value}
        autoFocus={matcher !== undefined}
        suggest={(prefix, signal) => suggestLabelValues(name, others, prefix, signal)}
        onInput={changeValue}
        onCommit={(text, isSuggested) => {
          changeValue(text);
          if (!isSuggested && !isMeantValue(text, matcher)) setValueMissing(true);
          else if (name !== "") onApply({ name, operator, value: text });
        }}
      />
      <button
        type="button"
        class="button"
        disabled={name === ""}
        onClick={() => onApply({ name, operator, value })}
      >
        Apply
      </button>
      <button type="button" class="button is-plain" aria-label="Cancel" onClick={onCancel}>
        ×
      </button>
      {isValueMissing && (
        <span class="matcher-hint" role="alert">
          The value is empty. Type one, or press Apply to compare with the empty value.
        </span>
      )}
    </span>
  );
}

interface OperatorSelectProps {
  readonly operator: MatchOperator;
  readonly onChange: (operator: MatchOperator) => void;
}

function OperatorSelect({ operator, onChange }: OperatorSelectProps) {
  return (
    <select
      class="field"
      aria-label="Operator"
      value={operator}
      title={OPERATOR_TITLES[operator]}
      onChange={(event) => onChange(event.currentTarget.value as MatchOperator)}
    >
      {MATCH_OPERATORS.map((text) => (
        <option key={text} value={text} title={OPERATOR_TITLES[text]}>
          {text}
        </option>
      ))}
    </select>
  );
}
