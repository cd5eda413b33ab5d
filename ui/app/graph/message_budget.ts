// Bounds of what decoding a message may allocate beyond the bytes of the message.

import { GraphFormatError } from "./wire";

/** Bound of the fields that hold texts or parts of columns, those of tables included. Far more than those of any graph. */
export const MAX_SPANS = 100_000;
/** Bound of the bytes of all texts of a message: texts that share bytes make a short message long. */
export const MAX_TEXT_BYTES = 2 ** 28;

/** Counters of one message. All its tables share them. */
export class MessageBudget {
  private spans = 0;
  private textBytes = 0;

  /** Bytes that further texts may have. */
  get textBytesLeft(): number {
    return MAX_TEXT_BYTES - this.textBytes;
  }

  addSpan(): void {
    this.spans++;
    if (this.spans > MAX_SPANS) throw new GraphFormatError(`message has more than ${MAX_SPANS} fields`);
  }

  addTextBytes(count: number): void {
    this.textBytes += count;
    if (this.textBytes > MAX_TEXT_BYTES)
      throw new GraphFormatError(`texts of the message are longer than ${MAX_TEXT_BYTES} bytes`);
  }
}
