// Function under the pointer, shared by all views of a page.

import { type Signal, signal } from "@preact/signals";

/** Name of the hovered function; undefined if the pointer is on none. */
export const hoveredName: Signal<string | undefined> = signal(undefined);
