// Labels of boxes: measured with the font of the canvas, kept from one drawing to the next.

import { fitLabel, labelForms } from "../graph/names";

export const LABEL_FONT_SIZE = 12;
export const LABEL_FONT = `${LABEL_FONT_SIZE}px system-ui, -apple-system, "Segoe UI", sans-serif`;

/** Labels of one graph are computed anew after this many, so that zooming for hours needs no more memory. */
const MAX_CACHED_LABELS = 50_000;
const MAX_CACHED_WIDTHS = 50_000;
const ASCII_COUNT = 128;
/** Widths of boxes per cached label of a name. Boxes of nearly one width share a label. */
const WIDTH_STEP_PIXELS = 2;
const MAX_WIDTH_STEPS = 4096;

/** Sets font and alignment. Without kerning and ligatures, a text is as wide as its characters. */
export function prepareLabelContext(context: CanvasRenderingContext2D): void {
  context.font = LABEL_FONT;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.direction = "ltr";
  context.fontKerning = "none";
  context.textRendering = "optimizeSpeed";
}

/** Labels of the names of one graph. */
export class LabelCache {
  private readonly context: CanvasRenderingContext2D;
  private readonly forms = new Map<number, readonly string[]>();
  private readonly labels = new Map<number, string>();
  private readonly widths = new Map<string, number>();
  private readonly asciiWidths = new Float32Array(ASCII_COUNT);

  constructor(context: CanvasRenderingContext2D) {
    this.context = context;
    prepareLabelContext(context);
    for (let code = 32; code < ASCII_COUNT; code++) {
      this.asciiWidths[code] = context.measureText(String.fromCharCode(code)).width;
    }
  }

  /** Forgets all names. For a graph with other names. */
  clear(): void {
    this.forms.clear();
    this.labels.clear();
  }

  /** Returns the longest label of a name that fits into a width. */
  labelOf(index: number, name: string, width: number): string {
    const step = Math.min(MAX_WIDTH_STEPS - 1, Math.floor(width / WIDTH_STEP_PIXELS));
    const key = index * MAX_WIDTH_STEPS + step;
    const cached = this.labels.get(key);
    if (cached !== undefined) return cached;
    const forms = this.formsOf(index, name);
    const available = step * WIDTH_STEP_PIXELS;
    let label = fitLabel(forms, available, (text) => this.estimateWidth(text));
    // Sums of character widths are exact for ASCII; other letters join and stack.
    if (!IS_ASCII.test(label) && this.measureWidth(label) > available) {
      label = fitLabel(forms, available, (text) => this.measureWidth(text));
    }
    if (this.labels.size >= MAX_CACHED_LABELS) this.clear();
    this.labels.set(key, label);
    return label;
  }

  /** Measures a text as the canvas draws it. */
  measureWidth(text: string): number {
    const cached = this.widths.get(text);
    if (cached !== undefined) return cached;
    const { width, actualBoundingBoxLeft, actualBoundingBoxRight } = this.context.measureText(text);
    // Slanted or stacked glyphs may reach beyond their advance.
    const measured = Math.max(width, actualBoundingBoxRight) + Math.max(0, actualBoundingBoxLeft);
    if (this.widths.size >= MAX_CACHED_WIDTHS) this.widths.clear();
    this.widths.set(text, measured);
    return measured;
  }

  private formsOf(index: number, name: string): readonly string[] {
    let forms = this.forms.get(index);
    if (forms === undefined) {
      forms = labelForms(name);
      this.forms.set(index, forms);
    }
    return forms;
  }

  private estimateWidth(text: string): number {
    let width = 0;
    for (let index = 0; index < text.length; index++) {
      const code = text.charCodeAt(index);
      if (code >= ASCII_COUNT) {
        if (code !== ELLIPSIS_CODE) return this.measureWidth(text);
        width += this.measureWidth("…");
      } else width += this.asciiWidths[code] as number;
    }
    return width;
  }
}

const ELLIPSIS_CODE = 0x2026;
/** Printable ASCII, behind the ellipsis of a cut label. */
const IS_ASCII = /^…?[\u0020-\u007e]*$/;
