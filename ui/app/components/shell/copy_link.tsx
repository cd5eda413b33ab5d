// Copies the link of the view. Relative times become absolute, so that the link shows the same later.
import { timeRangeOf } from "../../url/query_of";
import { hrefOf, view } from "../../url/store";
import { storeTime } from "../../url/time";
import type { ViewState } from "../../url/view_state";
import { copyText } from "../clipboard";

/** Returns the whole link of the view with a change. */
export function linkOfView(keepsRelativeTimes: boolean, change: Partial<ViewState> = {}): string {
  const { start, end } = timeRangeOf(view.peek());
  // Fixed times show the same graph.
  const zoomRange = change.zoomPath === undefined ? view.peek().zoomRange : "";
  const times = keepsRelativeTimes
    ? {}
    : { from: storeTime(start), until: storeTime(end), refreshSeconds: 0 };
  return new URL(hrefOf({ zoomRange, ...change, ...times }), document.baseURI).href;
}

export function copyLink(keepsRelativeTimes: boolean): void {
  const message = keepsRelativeTimes ? "Link copied, with relative times." : "Link copied, with fixed times.";
  void copyText(linkOfView(keepsRelativeTimes), message);
}

export function CopyLinkButton() {
  return (
    <button
      type="button"
      class="button"
      title="Copy a link with fixed times. Shift keeps relative times."
      onClick={(event) => copyLink(event.shiftKey)}
    >
      Copy link
    </button>
  );
}
