// Suggestions of label names and values. The server filters and counts.
import { call } from "../../api/client";
import { timeRangeOf } from "../../url/query_of";
import { formatSelector, type LabelMatcher } from "../../url/selector";
import { view } from "../../url/store";
import type { SuggestionList } from "./combobox";

/** Maximum number of suggestions. The server reports whether more match. */
const MAX_SUGGESTIONS = 100;

// Labels that the server adds, which selectors rarely need.
const isInternal = (name: string) => name.startsWith("__");

function rangeFields(matchers: readonly LabelMatcher[]) {
  const { start, end } = timeRangeOf(view.peek());
  return {
    start: String(start),
    end: String(end),
    matchers: matchers.length === 0 ? [] : [formatSelector(matchers)],
  };
}

/** Suggests names of labels that profiles with these matchers have. */
export async function suggestLabelNames(
  matchers: readonly LabelMatcher[],
  prefix: string,
  signal: AbortSignal,
): Promise<SuggestionList> {
  const { message } = await call(
    "querier.v1.QuerierService/LabelNames",
    { ...rangeFields(matchers), prefix, counts: true, limit: String(MAX_SUGGESTIONS) },
    { signal },
  );
  return toList(
    message.names,
    message.counts,
    message.more,
    (name) => prefix.startsWith("_") || !isInternal(name),
  );
}

/** Suggests values of a label. */
export async function suggestLabelValues(
  name: string,
  matchers: readonly LabelMatcher[],
  prefix: string,
  signal: AbortSignal,
): Promise<SuggestionList> {
  if (name === "") return { items: [], more: false };
  const { message } = await call(
    "querier.v1.QuerierService/LabelValues",
    { ...rangeFields(matchers), name, prefix, limit: String(MAX_SUGGESTIONS) },
    { signal },
  );
  return toList(message.names, message.counts, message.more, () => true);
}

function toList(
  names: readonly string[] = [],
  counts: readonly string[] = [],
  more: boolean | undefined,
  isShown: (name: string) => boolean,
): SuggestionList {
  const items = names.map((text, index) => {
    const count = counts[index];
    return { text, count: count === undefined ? undefined : BigInt(count) };
  });
  return { items: items.filter(({ text }) => isShown(text)), more: more === true };
}
