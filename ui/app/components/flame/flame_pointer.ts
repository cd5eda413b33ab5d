// Pointer input of a flame graph: hover, click, drag, wheel, long press, pinch.

import { scaleRange, shiftRange } from "../../canvas/zoom_range";
import { PinchTracker } from "./flame_pinch";
import type { BoxHit, FlameView } from "./flame_view";

/** Reactions of the component. Positions are relative to the page. */
export interface PointerEvents {
  onHover(hit: BoxHit | undefined, x: number, y: number): void;
  onClick(hit: BoxHit): void;
  onMenu(hit: BoxHit, x: number, y: number): void;
}

/** Movement in pixels from which a press is a drag. */
const DRAG_THRESHOLD = 4;
const LONG_PRESS_MS = 500;
/** Factor of the range a pixel of the wheel. */
const WHEEL_ZOOM_SPEED = 0.0025;
/** Pixels of a wheel step of one line. */
const WHEEL_LINE_PIXELS = 16;

interface Press {
  readonly pointerId: number;
  readonly pointerType: string;
  readonly startX: number;
  readonly startY: number;
  lastX: number;
  lastY: number;
  isDrag: boolean;
  longPress: ReturnType<typeof setTimeout> | undefined;
}

/** Follows the pointer on a view. Returns a function that stops it. */
export function followPointer(element: HTMLElement, view: FlameView, events: PointerEvents): () => void {
  const tracker = new PointerTracker(element, view, events);
  const abort = new AbortController();
  const { signal } = abort;
  element.addEventListener("pointerdown", (event) => tracker.press(event), { signal });
  element.addEventListener("pointermove", (event) => tracker.move(event), { signal });
  element.addEventListener("pointerup", (event) => tracker.release(event), { signal });
  element.addEventListener("pointercancel", (event) => tracker.abandon(event), { signal });
  element.addEventListener("lostpointercapture", (event) => tracker.abandon(event), { signal });
  element.addEventListener("pointerleave", () => events.onHover(undefined, 0, 0), { signal });
  element.addEventListener("contextmenu", (event) => tracker.openMenu(event), { signal });
  element.addEventListener("wheel", (event) => tracker.turnWheel(event), { signal, passive: false });
  return () => {
    tracker.cancel();
    abort.abort();
  };
}

class PointerTracker {
  private pressed: Press | undefined;
  private readonly pinch: PinchTracker;

  constructor(
    private readonly element: HTMLElement,
    private readonly view: FlameView,
    private readonly events: PointerEvents,
  ) {
    this.pinch = new PinchTracker(element, view);
  }

  press(event: PointerEvent): void {
    if (event.button !== 0) return;
    if (this.pinch.press(event)) {
      this.cancel();
      return;
    }
    // A new primary pointer of the same type means that the end of the press has been lost.
    if (this.pressed !== undefined && (!event.isPrimary || event.pointerType !== this.pressed.pointerType))
      return;
    this.cancel();
    const press: Press = {
      pointerId: event.pointerId,
      pointerType: event.pointerType,
      startX: event.clientX,
      startY: event.clientY,
      lastX: event.clientX,
      lastY: event.clientY,
      isDrag: false,
      longPress: undefined,
    };
    if (event.pointerType !== "mouse") {
      press.longPress = setTimeout(() => {
        this.pressed = undefined;
        this.showMenu(press.startX, press.startY);
      }, LONG_PRESS_MS);
    }
    this.pressed = press;
  }

  move(event: PointerEvent): void {
    if (this.pinch.move(event)) return;
    const press = this.pressed;
    if (press === undefined || press.pointerId !== event.pointerId) {
      this.events.onHover(this.hitAt(event.clientX, event.clientY), event.clientX, event.clientY);
      return;
    }
    const distance = Math.hypot(event.clientX - press.startX, event.clientY - press.startY);
    if (!press.isDrag && distance >= DRAG_THRESHOLD) {
      press.isDrag = true;
      clearTimeout(press.longPress);
      this.element.setPointerCapture(event.pointerId);
      this.element.classList.add("is-dragging");
      this.events.onHover(undefined, 0, 0);
    }
    if (!press.isDrag) return;
    const share = (press.lastX - event.clientX) / Math.max(1, this.view.size.width);
    if (share !== 0) this.view.setRange(shiftRange(this.view.range, share));
    this.view.scrollBy(press.lastY - event.clientY);
    press.lastX = event.clientX;
    press.lastY = event.clientY;
  }

  release(event: PointerEvent): void {
    if (this.pinch.release(event)) return;
    const press = this.pressed;
    if (press === undefined || press.pointerId !== event.pointerId) return;
    this.cancel();
    if (press.isDrag) return;
    const hit = this.hitAt(event.clientX, event.clientY);
    if (hit !== undefined) this.events.onClick(hit);
  }

  abandon(event: PointerEvent): void {
    this.pinch.release(event);
    if (this.pressed?.pointerId === event.pointerId) this.cancel();
  }

  cancel(): void {
    clearTimeout(this.pressed?.longPress);
    this.pressed = undefined;
    this.element.classList.remove("is-dragging");
  }

  openMenu(event: MouseEvent): void {
    event.preventDefault();
    // The long press has opened the menu already, and Shift-F10 opens it by the keyboard.
    if (event.button !== 2) return;
    this.showMenu(event.clientX, event.clientY);
  }

  turnWheel(event: WheelEvent): void {
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? WHEEL_LINE_PIXELS : 1;
    const width = Math.max(1, this.view.size.width);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const anchor = (event.clientX - this.element.getBoundingClientRect().left) / width;
      const factor = Math.exp(event.deltaY * unit * WHEEL_ZOOM_SPEED);
      this.view.setRange(scaleRange(this.view.range, factor, Math.min(1, Math.max(0, anchor))));
      return;
    }
    const across = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    if (across === 0) return;
    event.preventDefault();
    this.view.setRange(shiftRange(this.view.range, (across * unit) / width));
    if (!event.shiftKey) this.view.scrollBy(event.deltaY * unit);
  }

  private showMenu(x: number, y: number): void {
    const hit = this.hitAt(x, y);
    if (hit !== undefined) this.events.onMenu(hit, x, y);
  }

  private hitAt(clientX: number, clientY: number): BoxHit | undefined {
    const bounds = this.element.getBoundingClientRect();
    const x = clientX - bounds.left;
    if (x < 0 || x >= this.view.size.width) return undefined;
    return this.view.hitTest(x, clientY - bounds.top);
  }
}
