// Seeded generator for property tests.

/** Random numbers that are the same in each run (mulberry32). */
export class SeededRandom {
  constructor(private seed: number) {}

  /** Returns a whole number from 0 to below a bound. */
  below(bound: number): number {
    this.seed = (this.seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.seed ^ (this.seed >>> 15), 1 | this.seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  list<T>(maxLength: number, make: () => T): T[] {
    return Array.from({ length: this.below(maxLength + 1) }, make);
  }

  /** Returns a text with whatever breaks parsers: separators, quotes, marks of direction, other planes. */
  hostileText(maxParts = 6): string {
    return this.list(maxParts, () => this.pick(HOSTILE_PARTS)).join("");
  }
}

const HOSTILE_PARTS = [
  ..."abc;,:&=?#%+~\\/\"'`<>{}[]() \n\t\0|",
  "main",
  "std::vec<T>",
  "<img onerror=alert(1)>",
  "\u202e\u2066",
  "\ufeff",
  "😀",
  "ü",
  "%zz",
  "%E0%A4",
  "\\;",
  "~~",
];
