// Canvas that is sharp at any device pixel ratio.

/** Size of a drawing in CSS pixels, with the device pixels of each. */
export interface SurfaceSize {
  readonly width: number;
  readonly height: number;
  readonly pixelRatio: number;
}

/** Largest edge of a canvas in device pixels. Browsers refuse larger ones. */
const MAX_DEVICE_PIXELS = 16_384;

/** Fits the bitmap of a canvas to its size. Returns the context, scaled to CSS pixels and cleared. */
export function beginDrawing(canvas: HTMLCanvasElement, size: SurfaceSize): CanvasRenderingContext2D | null {
  const width = Math.min(MAX_DEVICE_PIXELS, Math.max(1, Math.round(size.width * size.pixelRatio)));
  const height = Math.min(MAX_DEVICE_PIXELS, Math.max(1, Math.round(size.height * size.pixelRatio)));
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.style.width = `${size.width}px`;
  canvas.style.height = `${size.height}px`;
  const context = canvas.getContext("2d");
  if (context === null) return null;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, width, height);
  context.setTransform(size.pixelRatio, 0, 0, size.pixelRatio, 0, 0);
  return context;
}
