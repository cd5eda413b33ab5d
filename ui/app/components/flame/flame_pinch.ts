// Zoom by two fingers on a touch screen.

import { type FingerPair, pinchRange } from "../../canvas/zoom_range";
import type { FlameView } from "./flame_view";

interface Finger {
  x: number;
  y: number;
}

const FINGERS_OF_PINCH = 2;

/** Follows the fingers on a view. A pinch lasts from the second finger to the lifting of all. */
export class PinchTracker {
  private readonly fingers = new Map<number, Finger>();
  private isPinch = false;

  constructor(
    private readonly element: Pick<HTMLElement, "setPointerCapture" | "getBoundingClientRect">,
    private readonly view: Pick<FlameView, "range" | "size" | "setRange" | "scrollBy">,
  ) {}

  /** Adds a finger. Returns whether it takes part in a pinch. Mice and pens never do. */
  press(event: PointerEvent): boolean {
    if (event.pointerType !== "touch") return false;
    // A primary finger is the only one on the screen: the end of any other has been lost.
    if (event.isPrimary) this.clear();
    this.fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.capture(event.pointerId);
    if (this.fingers.size < FINGERS_OF_PINCH) return false;
    this.isPinch = true;
    return true;
  }

  /** Zooms and moves the view with the fingers. Returns whether they pinch. */
  move(event: PointerEvent): boolean {
    const finger = this.fingers.get(event.pointerId);
    if (finger === undefined) return false;
    const before = this.pair();
    const heightBefore = this.middle("y");
    finger.x = event.clientX;
    finger.y = event.clientY;
    const after = this.pair();
    if (before !== undefined && after !== undefined) {
      this.view.setRange(pinchRange(this.view.range, before, after));
      this.view.scrollBy(heightBefore - this.middle("y"));
    }
    return this.isPinch;
  }

  /** Removes a finger. Returns whether it took part in a pinch. */
  release(event: PointerEvent): boolean {
    if (!this.fingers.delete(event.pointerId)) return false;
    const wasPinch = this.isPinch;
    if (this.fingers.size === 0) this.isPinch = false;
    return wasPinch;
  }

  private clear(): void {
    this.fingers.clear();
    this.isPinch = false;
  }

  /** Has the browser send the end of a finger to the element, wherever it is lifted. */
  private capture(pointerId: number): void {
    try {
      this.element.setPointerCapture(pointerId);
    } catch (error) {
      // The finger has left the screen before its press was handled.
      if (!(error instanceof DOMException && error.name === "NotFoundError")) throw error;
    }
  }

  private middle(axis: "x" | "y"): number {
    let sum = 0;
    for (const finger of this.fingers.values()) sum += finger[axis];
    return sum / this.fingers.size;
  }

  private pair(): FingerPair | undefined {
    if (this.fingers.size !== FINGERS_OF_PINCH) return undefined;
    const [first, second] = [...this.fingers.values()] as [Finger, Finger];
    const { left } = this.element.getBoundingClientRect();
    return {
      center: (this.middle("x") - left) / Math.max(1, this.view.size.width),
      distance: Math.hypot(first.x - second.x, first.y - second.y),
    };
  }
}
