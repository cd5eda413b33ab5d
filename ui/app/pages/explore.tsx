// Explore page: the timeline, and one or two views of the selected profiles.

import { useEffect } from "preact/hooks";
import { FrameMenu } from "../components/frame_menu";
import { isTyping } from "../components/shell/shortcuts";
import { Timeline } from "../components/timeline/timeline";
import { navigate, view } from "../url/store";
import { ExploreToolbar } from "./explore_toolbar";
import { VIEW_TITLES, viewsWith } from "./explore_views";
import { ViewPane } from "./view_pane";
import "./explore.css";

/** Index of the view that the keys 1 to 5 replace: the one that had the focus last. */
let focusedPane: 0 | 1 = 0;

function onKeyDown(event: KeyboardEvent) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
  if (document.querySelector("dialog[open]") !== null) return;
  const name = VIEW_TITLES[Number(event.key) - 1]?.[0];
  if (name !== undefined) {
    navigate({ views: viewsWith(view.peek().views, focusedPane, name) });
    event.preventDefault();
  }
}

export function ExplorePage() {
  useEffect(() => {
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
  const { views } = view.value;
  return (
    <main class="explore-page">
      <h1 class="visually-hidden">Explore</h1>
      <Timeline />
      <ExploreToolbar />
      <div class="explore-views">
        {views.map((name, index) => {
          const pane = index === 0 ? 0 : 1;
          return (
            <div
              class="explore-view"
              key={`${index}-${name}`}
              data-view={name}
              onFocusCapture={() => {
                focusedPane = pane;
              }}
            >
              <ViewPane name={name} pane={pane} isSplit={views.length > 1} />
            </div>
          );
        })}
      </div>
      <FrameMenu />
    </main>
  );
}
