// Search for functions by text or /regex/, with the exact number and total of all matches.

import { useEffect, useState } from "preact/hooks";
import { call } from "../api/client";
import type { FunctionsRequest } from "../api/types";
import { queryOf } from "../url/query_of";
import { navigate, view } from "../url/store";
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
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    if (search === "") (event.currentTarget as HTMLElement).blur();
    else navigate({ search: "" }, "typing");
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
        onFocus={(event) => event.currentTarget.select()}
        onKeyDown={onKeyDown}
      />
      <output
        id="search-status"
        class={`search-status${isFailed ? " is-error" : ""}${highlight === "" ? "" : " is-wide"}`}
        title={status}
      >
        {status}
      </output>
    </div>
  );
}
