// Label selectors: `{service_name="shop", pod=~"a.*"}` as matchers, and back.

export type MatchOperator = "=" | "!=" | "=~" | "!~";

export const MATCH_OPERATORS: readonly MatchOperator[] = ["=", "!=", "=~", "!~"];

export interface LabelMatcher {
  readonly name: string;
  readonly operator: MatchOperator;
  readonly value: string;
}

/** Largest selector that is parsed here. The server has its own limit. */
export const MAX_SELECTOR_CHARS = 65_536;

const PLAIN_NAME = /^[a-zA-Z_][a-zA-Z0-9_.]*$/;
const SIMPLE_ESCAPES: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r" };
const HEX_DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };
const MAX_CODE_POINT = 0x10ffff;

/** Returns a regular expression that matches exactly a text. */
export function escapeRegex(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}

/** Quotes a value, with the escapes that the server reads. */
export function quoteValue(value: string): string {
  return `"${value.replace(/["\\]/g, "\\$&").replaceAll("\n", "\\n")}"`;
}

export function formatMatcher({ name, operator, value }: LabelMatcher): string {
  return `${PLAIN_NAME.test(name) ? name : quoteValue(name)}${operator}${quoteValue(value)}`;
}

export function formatSelector(matchers: readonly LabelMatcher[]): string {
  return `{${matchers.map(formatMatcher).join(", ")}}`;
}

/** Returns the matchers of a selector, or undefined if the server would reject it. */
export function parseSelector(text: string): readonly LabelMatcher[] | undefined {
  if (text.length > MAX_SELECTOR_CHARS) return undefined;
  const reader = new SelectorReader(text);
  try {
    return reader.readSelector();
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

class SelectorReader {
  private position = 0;

  constructor(private readonly text: string) {}

  readSelector(): LabelMatcher[] {
    this.expect("{");
    const matchers: LabelMatcher[] = [];
    while (!this.accept("}")) {
      matchers.push(this.readMatcher());
      if (this.accept(",")) continue;
      this.expect("}");
      break;
    }
    this.skipSpaces();
    if (this.position < this.text.length) throw new SyntaxError("text after the selector");
    return matchers;
  }

  private readMatcher(): LabelMatcher {
    this.skipSpaces();
    const isQuoted = /["'`]/.test(this.text.charAt(this.position));
    const name = isQuoted ? this.readString() : this.readName();
    const operator = (["=~", "!~", "!=", "="] as const).find((token) => this.accept(token));
    if (operator === undefined) throw new SyntaxError("no operator");
    return { name, operator, value: this.readString() };
  }

  private skipSpaces(): void {
    while (/\s/.test(this.text.charAt(this.position))) this.position++;
  }

  private accept(token: string): boolean {
    this.skipSpaces();
    if (!this.text.startsWith(token, this.position)) return false;
    this.position += token.length;
    return true;
  }

  private expect(token: string): void {
    if (!this.accept(token)) throw new SyntaxError(`no ${token}`);
  }

  private readName(): string {
    const pattern = /[a-zA-Z_][a-zA-Z0-9_.]*/y;
    pattern.lastIndex = this.position;
    const name = pattern.exec(this.text)?.[0];
    if (name === undefined) throw new SyntaxError("no label name");
    this.position += name.length;
    return name;
  }

  private readString(): string {
    this.skipSpaces();
    const quote = this.text.charAt(this.position++);
    if (quote !== '"' && quote !== "'" && quote !== "`") throw new SyntaxError("no quoted value");
    let value = "";
    for (;;) {
      const char = this.text.charAt(this.position++);
      if (char === "") throw new SyntaxError("no closing quote");
      if (char === quote) return value;
      value += char === "\\" && quote !== "`" ? this.readEscape() : char;
    }
  }

  private readEscape(): string {
    const char = this.text.charAt(this.position++);
    if (char === "\\" || char === '"' || char === "'") return char;
    const simple = SIMPLE_ESCAPES[char];
    if (simple !== undefined) return simple;
    const digits = HEX_DIGITS[char];
    const hex = digits === undefined ? "" : this.text.slice(this.position, this.position + digits);
    const code = Number.parseInt(hex, 16);
    if (hex.length !== digits || !/^[0-9a-f]+$/i.test(hex) || code > MAX_CODE_POINT)
      throw new SyntaxError("bad escape");
    this.position += digits;
    return String.fromCodePoint(code);
  }
}

/** Returns a selector with a condition on a label in place of those that it had. Unreadable selectors are replaced. */
export function withLabel(selector: string, matcher: LabelMatcher): string {
  const others = (parseSelector(selector) ?? []).filter(({ name }) => name !== matcher.name);
  return formatSelector([...others, matcher]);
}

/** Returns a selector with another condition in place of one, which is undefined for a new one or for none. */
export function replaceMatcher(
  selector: string,
  old: LabelMatcher | undefined,
  next: LabelMatcher | undefined,
): string {
  const matchers = [...(parseSelector(selector) ?? [])];
  const place = matchers.findIndex(
    (matcher) => old !== undefined && formatMatcher(matcher) === formatMatcher(old),
  );
  const added = next === undefined ? [] : [next];
  if (place < 0) matchers.push(...added);
  else matchers.splice(place, 1, ...added);
  return formatSelector(matchers);
}
