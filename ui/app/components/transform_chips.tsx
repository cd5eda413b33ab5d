// Active transforms as chips that can be removed, and a form that adds one by text.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { view } from "../url/store";
import type { TransformAction, TransformState } from "../url/view_state";
import { Menu } from "./shell/menu";
import {
  addTransform,
  parseTransform,
  removeTransform,
  showPattern,
  TRANSFORM_ACTIONS,
  TRANSFORM_HELP,
  TRANSFORM_LABELS,
} from "./transforms";
import "./transform_chips.css";

/** Longest pattern on a chip. Its title has all of it. */
const MAX_CHIP_CHARACTERS = 48;

const ADD_LABEL = (
  <>
    <span aria-hidden="true">+</span> Transform
  </>
);

/** Row of chips. Transforms scroll, so that a further one moves nothing below them. Children are chips that stay. */
export function TransformChips({ children }: { readonly children?: ComponentChildren }) {
  const { transforms } = view.value;
  const row = useRef<HTMLDivElement>(null);
  const shownCount = useRef(0);
  useLayoutEffect(() => {
    // The latest transform is at the end.
    if (transforms.length > shownCount.current && row.current !== null)
      row.current.scrollLeft = row.current.scrollWidth;
    shownCount.current = transforms.length;
  }, [transforms.length]);
  return (
    <div class="transform-chips">
      <Menu label={ADD_LABEL} title="Transform stacks" class="is-plain">
        {() => <TransformForm />}
      </Menu>
      {children}
      <div class="transform-chips-row" ref={row}>
        <ol aria-label="Transforms, applied in this order">
          {transforms.map((transform, index) => (
            <Chip
              key={`${index} ${transform.action} ${transform.pattern}`}
              transform={transform}
              index={index}
            />
          ))}
        </ol>
      </div>
    </div>
  );
}

function Chip({ transform, index }: { readonly transform: TransformState; readonly index: number }) {
  const label = TRANSFORM_LABELS[transform.action];
  const pattern = showPattern(transform);
  const shown = pattern.length > MAX_CHIP_CHARACTERS ? `…${pattern.slice(-MAX_CHIP_CHARACTERS)}` : pattern;
  return (
    <li class="transform-chip" title={`${TRANSFORM_HELP[transform.action]}: ${pattern.slice(0, 1000)}`}>
      <span class="transform-chip-action">{label}</span>
      <bdi>{shown}</bdi>
      <button type="button" aria-label={`Remove ${label} ${shown}`} onClick={() => removeTransform(index)}>
        <svg viewBox="0 0 10 10" aria-hidden="true">
          <path d="M2 2 8 8M8 2 2 8" />
        </svg>
      </button>
    </li>
  );
}

function TransformForm() {
  const [action, setAction] = useState<TransformAction>("focus");
  const [text, setText] = useState("");
  const transform = parseTransform(action, text);
  const onSubmit = (event: Event) => {
    event.preventDefault();
    if (transform === undefined) return;
    addTransform(transform);
    setText("");
  };
  return (
    <form class="transform-form" onSubmit={onSubmit}>
      <label>
        Transform
        <select
          class="field"
          value={action}
          onChange={(event) => setAction(event.currentTarget.value as TransformAction)}
        >
          {TRANSFORM_ACTIONS.map((name) => (
            <option key={name} value={name}>
              {TRANSFORM_LABELS[name]}
            </option>
          ))}
        </select>
      </label>
      <label>
        Function, or /regex/
        <input
          class="field"
          type="text"
          spellcheck={false}
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <p>{TRANSFORM_HELP[action]}.</p>
      <button type="submit" class="button is-primary" disabled={transform === undefined}>
        Add
      </button>
    </form>
  );
}
