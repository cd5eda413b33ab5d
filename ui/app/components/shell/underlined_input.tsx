// Text field that underlines the character at which an error is.
import { useEffect, useId, useRef } from "preact/hooks";

interface UnderlinedInputProps {
  readonly label: string;
  readonly value: string;
  readonly placeholder: string;
  /** Position of the error in characters from 1. */
  readonly position: number | undefined;
  readonly message: string | undefined;
  readonly onInput: (value: string) => void;
  readonly onEnter: () => void;
}

/** Splits a text around the character at a position, in code points from 1. Beyond the end, that is a space. */
export function splitAtCharacter(
  text: string,
  position: number,
): readonly [before: string, at: string, after: string] {
  const chars = Array.from(text);
  const index = Math.min(Math.max(position, 1), chars.length + 1) - 1;
  return [chars.slice(0, index).join(""), chars[index] ?? " ", chars.slice(index + 1).join("")];
}

interface UnderlinedTextProps {
  readonly text: string;
  readonly position: number;
}

/** Text with an underlined character. */
export function UnderlinedText({ text, position }: UnderlinedTextProps) {
  const [before, at, after] = splitAtCharacter(text, position);
  return (
    <>
      {before}
      <span class="underlined-input-error">{at}</span>
      {after}
    </>
  );
}

export function UnderlinedInput(props: UnderlinedInputProps) {
  const { label, value, placeholder, position, message, onInput, onEnter } = props;
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const mirror = useRef<HTMLDivElement>(null);
  const syncScroll = () => {
    if (mirror.current !== null && input.current !== null)
      mirror.current.scrollLeft = input.current.scrollLeft;
  };
  useEffect(() => {
    if (position === undefined || input.current === null) return;
    const [before, at] = splitAtCharacter(input.current.value, position);
    input.current.setSelectionRange(before.length, before.length + at.length);
    syncScroll();
  }, [position]);
  return (
    <div class="underlined-input">
      <div class="underlined-input-box">
        <div class="underlined-input-mirror" ref={mirror} aria-hidden="true">
          {position === undefined ? value : <UnderlinedText text={value} position={position} />}
        </div>
        <input
          ref={input}
          class="field"
          type="text"
          aria-label={label}
          aria-invalid={message !== undefined}
          aria-describedby={message === undefined ? undefined : `${id}-error`}
          autocomplete="off"
          spellcheck={false}
          placeholder={placeholder}
          value={value}
          onInput={(event) => onInput(event.currentTarget.value)}
          onScroll={syncScroll}
          onKeyDown={(event) => {
            if (event.key === "Enter") onEnter();
          }}
        />
      </div>
      {message !== undefined && (
        <div class="selector-error" id={`${id}-error`} role="alert">
          {message}
        </div>
      )}
    </div>
  );
}
