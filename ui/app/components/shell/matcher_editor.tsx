// Editor of one condition of a selector.
import { useState } from "preact/hooks";
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

export function MatcherEditor({ matcher, others, onApply, onCancel }: MatcherEditorProps) {
  const [name, setName] = useState(matcher?.name ?? "");
  const [operator, setOperator] = useState<MatchOperator>(matcher?.operator ?? "=");
  const [value, setValue] = useState(matcher?.value ?? "");
  const [isNameDone, setNameDone] = useState(matcher !== undefined);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    onCancel();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: Escape works from every field within
    <span class="matcher-editor" onKeyDown={onKeyDown}>
      <Combobox
        label="Label name"
        placeholder="label"
        value={name}
        autoFocus={!isNameDone}
        suggest={(prefix, signal) => suggestLabelNames(others, prefix, signal)}
        onInput={setName}
        onCommit={(text) => {
          setName(text);
          setNameDone(text !== "");
        }}
      />
      <select
        class="field"
        aria-label="Operator"
        value={operator}
        title={OPERATOR_TITLES[operator]}
        onChange={(event) => setOperator(event.currentTarget.value as MatchOperator)}
      >
        {MATCH_OPERATORS.map((text) => (
          <option key={text} value={text} title={OPERATOR_TITLES[text]}>
            {text}
          </option>
        ))}
      </select>
      <Combobox
        label="Label value"
        placeholder="value"
        value={value}
        autoFocus={isNameDone}
        suggest={(prefix, signal) => suggestLabelValues(name, others, prefix, signal)}
        onInput={setValue}
        onCommit={(text) => {
          setValue(text);
          if (name !== "") onApply({ name, operator, value: text });
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
    </span>
  );
}
