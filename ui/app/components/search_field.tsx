// Search for functions by text or /regex/, with the exact number and total of all matches.

import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../api/client";
import type { FunctionsRequest } from "../api/types";
import { queryOf } from "../url/query_of";
import { navigate, view } from "../url/store";
import { focusView, requestJump } from "./search_jump";
import { describeHighlight, describeMatches, filterOfSearch } from "./search_text";
import { useLiveQuery } from "./use_live_query";
import "./search_field.css";

/** Pause in typing after which the server counts matches. */
const TYPING_DELAY_MS = 150;

function requestOf(search: string): FunctionsRequest | undefined {
  const filter = filterOfSearch(search);
  const query = queryOf(view.value);
  if (filter === undefined || query === undefined) return undefined;
  return { query, filter, page: { limit: 1 } };
}

/** Returns the pane of an element that loses the focus. */
function paneOf(target: EventTarget | null): Element | null {
  return target instanceof Element ? target.closest(".explore-view") : null;
}

export function SearchField() {
  const { search } = view.value;
  const [settled, setSettled] = useState(search);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(search), TYPING_DELAY_MS);
    return () => clearTimeout(timer);
  }, [search]);
  const query = useLiveQuery(requestOf(settled), async (request: FunctionsRequest, signal) => {
    const { message } = await call("athanor.v1.ExploreService/Functions", request, { signal });
    return message;
  });
  const { kind, value, error } = query.state.value;
  const isCurrent = settled === search && kind === "done" && value !== undefined;
  const highlight = describeHighlight(view.value);
  const status =
    search === ""
      ? ""
      : kind === "failed"
        ? (error?.message ?? "")
        : isCurrent
          ? [describeMatches(value), highlight].filter((text) => text !== "").join("; ")
          : "…";
  const isFailed = search !== "" && kind === "failed";
  const previousPane = useRef<Element | null>(null);
  // A view without a match would have nothing to jump to, so the field keeps the focus.
  const hasNone = isCurrent && highlight === "" && BigInt(value.count ?? "0") === 0n;
  const canJump = search !== "" && !isFailed && !hasNone;
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing || (event.key !== "Escape" && event.key !== "Enter")) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Escape" && search !== "") navigate({ search: "" }, "typing");
    else if (event.key === "Escape") focusView(previousPane.current);
    else if (canJump) {
      const element = focusView(previousPane.current);
      if (element !== undefined) requestJump({ search, step: event.shiftKey ? -1 : 1, element });
    }
  };
  return (
    <div class="search-field">
      <input
        class="field"
        type="text"
        aria-label="Search functions by text or /regex/"
        aria-invalid={isFailed}
        aria-describedby="search-status"
        placeholder="Search functions, /regex/"
        data-search-field
        spellcheck={false}
        autocomplete="off"
        value={search}
        onInput={(event) => navigate({ search: event.currentTarget.value }, "typing")}
        onFocus={(event) => {
          previousPane.current = paneOf(event.relatedTarget);
          event.currentTarget.select();
        }}
        onKeyDown={onKeyDown}
      />
      <div class={`search-status-place${highlight === "" || isFailed ? "" : " is-wide"}`}>
        <output id="search-status" class={`search-status${isFailed ? " is-error" : ""}`} title={status}>
          {status}
        </output>
      </div>
    </div>
  );
}
