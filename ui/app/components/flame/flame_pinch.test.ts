// Tests of the fingers on a view: two zoom, and fingers whose end is lost break nothing.
import { beforeEach, expect, test } from "vitest";
import { WHOLE_RANGE, type ZoomRange } from "../../canvas/zoom_range";
import { PinchTracker } from "./flame_pinch";

const WIDTH = 1_000;
const view = {
  range: WHOLE_RANGE,
  size: { width: WIDTH, height: 500 },
  scrolled: 0,
  setRange(range: ZoomRange) {
    view.range = range;
  },
  scrollBy(pixels: number) {
    view.scrolled += pixels;
  },
};
/** Pointers that the browser can capture. */
const active = new Set<number>();
const captured: number[] = [];
const element = {
  setPointerCapture(pointerId: number) {
    if (!active.has(pointerId)) throw new DOMException("no active pointer", "NotFoundError");
    captured.push(pointerId);
  },
  getBoundingClientRect: () => ({ left: 0 }) as DOMRect,
};
let tracker: PinchTracker;

beforeEach(() => {
  view.range = WHOLE_RANGE;
  view.scrolled = 0;
  active.clear();
  captured.length = 0;
  tracker = new PinchTracker(element, view as unknown as ConstructorParameters<typeof PinchTracker>[1]);
});

function pointer(pointerId: number, clientX: number, change: Partial<PointerEvent> = {}): PointerEvent {
  return {
    pointerId,
    clientX,
    clientY: 100,
    pointerType: "touch",
    isPrimary: false,
    ...change,
  } as PointerEvent;
}

function press(pointerId: number, x: number, change: Partial<PointerEvent> = {}): boolean {
  active.add(pointerId);
  return tracker.press(pointer(pointerId, x, change));
}

function pressPair(): void {
  expect(press(1, 400, { isPrimary: true })).toBe(false);
  expect(press(2, 600)).toBe(true);
}

test("two_fingers_zoom_around_their_middle", () => {
  pressPair();
  expect(tracker.move(pointer(1, 300))).toBe(true);
  expect(tracker.move(pointer(2, 700))).toBe(true);
  expect(view.range.to - view.range.from).toBeCloseTo(0.5);
  expect((view.range.from + view.range.to) / 2).toBeCloseTo(0.5);
  tracker.move(pointer(1, 300, { clientY: 80 }));
  expect(view.scrolled).toBe(10);
});

test("each_finger_is_captured_at_its_press", () => {
  press(1, 400, { isPrimary: true });
  expect(captured).toEqual([1]);
  press(2, 600);
  expect(captured).toEqual([1, 2]);
});

test("staggered_fingers_pinch_until_all_are_lifted", () => {
  pressPair();
  expect(tracker.release(pointer(1, 400))).toBe(true);
  expect(tracker.move(pointer(2, 900))).toBe(true);
  expect(view.range).toEqual(WHOLE_RANGE);
  expect(press(3, 700)).toBe(true);
  tracker.move(pointer(3, 500));
  expect(view.range.to - view.range.from).toBeCloseTo(0.5);
  expect(tracker.release(pointer(2, 900))).toBe(true);
  expect(tracker.release(pointer(3, 500))).toBe(true);
  expect(tracker.release(pointer(3, 500))).toBe(false);
  expect(press(4, 100, { isPrimary: true })).toBe(false);
  expect(tracker.release(pointer(4, 100))).toBe(false);
});

test("third_finger_stops_the_zoom", () => {
  pressPair();
  expect(press(3, 500)).toBe(true);
  expect(tracker.move(pointer(1, 100))).toBe(true);
  expect(view.range).toEqual(WHOLE_RANGE);
});

test("finger_whose_end_is_lost_is_dropped_at_the_next_first_finger", () => {
  press(1, 400, { isPrimary: true });
  active.delete(1);
  expect(press(2, 600, { isPrimary: true })).toBe(false);
  expect(tracker.move(pointer(2, 700))).toBe(false);
  expect(press(3, 500)).toBe(true);
  expect(tracker.move(pointer(1, 0))).toBe(false);
});

test("pinch_whose_ends_are_lost_does_not_swallow_the_next_finger", () => {
  pressPair();
  active.clear();
  expect(press(3, 600, { isPrimary: true })).toBe(false);
  expect(tracker.release(pointer(3, 600))).toBe(false);
});

test("finger_that_left_before_its_press_is_followed_without_capture", () => {
  expect(tracker.press(pointer(1, 400, { isPrimary: true }))).toBe(false);
  expect(captured).toEqual([]);
});

test("mice_and_pens_do_not_pinch", () => {
  press(1, 400, { isPrimary: true });
  expect(press(2, 600, { pointerType: "pen", isPrimary: true })).toBe(false);
  expect(press(3, 600, { pointerType: "mouse", isPrimary: true })).toBe(false);
  expect(tracker.move(pointer(2, 900))).toBe(false);
  expect(view.range).toEqual(WHOLE_RANGE);
});
