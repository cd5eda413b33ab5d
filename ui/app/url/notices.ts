// Short messages to the user, shown above the page until they are closed or time out.
import { type ReadonlySignal, signal } from "@preact/signals";

export interface Notice {
  readonly id: number;
  readonly kind: "info" | "warning" | "error";
  readonly text: string;
}

const MAX_NOTICES = 5;
const openNotices = signal<readonly Notice[]>([]);
let nextId = 1;

export const notices: ReadonlySignal<readonly Notice[]> = openNotices;

/** Shows a message. A message that is open already is not shown a second time. */
export function notify(text: string, kind: Notice["kind"] = "info"): void {
  const others = openNotices.peek().filter((notice) => notice.text !== text);
  openNotices.value = [...others.slice(1 - MAX_NOTICES), { id: nextId++, kind, text }];
}

export function closeNotice(id: number): void {
  openNotices.value = openNotices.peek().filter((notice) => notice.id !== id);
}
