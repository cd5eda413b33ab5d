// Labels of frames: names made safe to show, and shortened so that their end remains.

/** Measures the width of a text. */
export type TextMeasure = (text: string) => number;

/** Longest part of a name that labels consider, counted from its end. No box shows more. */
const MAX_LABEL_CHARACTERS = 2048;
/** Shorter ends of a name identify no function, so the box stays empty. Ends that are whole words may be shorter. */
const MIN_ENDING_CHARACTERS = 5;
const MIN_WORD_CHARACTERS = 4;
/** Least part of the characters that fit which an ending of whole words has. */
const MIN_WORD_SHARE = 0.6;
/** Marks above one letter; more of them would leave the row. */
const MAX_COMBINING_MARKS = 2;

const CONTROL_PICTURES = 0x2400;

/** Characters that are invisible or change the direction of text. */
const UNSAFE_CHARACTERS = new RegExp(
  "[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u115f\\u1160\\u180e\\u200b-\\u200f\\u2028-\\u202e" +
    "\\u2060-\\u206f\\u3164\\ufeff\\ufff9-\\ufffb]" +
    "|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]",
  "gu",
);
const MARK_STACKS = new RegExp(`(\\p{M}{${MAX_COMBINING_MARKS}})\\p{M}+`, "gu");
const IS_PLAIN = /^[\u0020-\u007e]*$/;

/** Shown in place of an empty name. */
export const NO_NAME = "(no name)";

/** Returns the name with control characters and direction marks spelled out, so that it cannot mislead. */
export function showName(name: string): string {
  if (isNameless(name)) return showName(NO_NAME + name);
  if (IS_PLAIN.test(name)) return name;
  return name.replace(UNSAFE_CHARACTERS, spellCharacter).replace(MARK_STACKS, "$1");
}

/** Returns whether the function of a frame has no name. A frame of lines then begins with the space before its file. */
function isNameless(name: string): boolean {
  return name === "" || (name.startsWith(" ") && splitLineFrame(name).functionName === "");
}

function spellCharacter(character: string): string {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(CONTROL_PICTURES + code);
  if (code === 0x7f) return "\u2421";
  if (code >= 0xd800 && code <= 0xdfff) return "\ufffd";
  return `<${code.toString(16).toUpperCase().padStart(4, "0")}>`;
}

/** Hash that Rust appends to a name, `::h` and 16 hexadecimal digits. */
const RUST_HASH = /::h[0-9a-f]{16}(?=$|[^0-9a-zA-Z_])/g;

/** Removes the hash that Rust appends to names. */
export function removeRustHash(name: string): string {
  return name.includes("::h") ? name.replace(RUST_HASH, "") : name;
}

const OPENING = "<[(";
const CLOSING = ">])";

/**
 * Removes template and type arguments: brackets that follow an identifier or a turbofish. Others mean something:
 * `Foo.<init>`, `(*T).Method`, `(anonymous namespace)`. A leading `<X as Trait>` becomes `X`.
 */
export function removeTypeArguments(name: string): string {
  if (!name.includes("<") && !name.includes("[")) return name;
  let text = "";
  let copied = 0;
  for (let index = 0; index < name.length; index++) {
    const character = name[index];
    if (character !== "<" && character !== "[") continue;
    if (character === "<" && isOperator(name, index)) continue;
    const isLeading = index === 0 && character === "<";
    if (!isLeading && !followsIdentifier(name, index)) continue;
    const close = findClosing(name, index);
    if (close < 0) break;
    if (isLeading && name.startsWith("::", close + 1)) {
      text += implementingType(name.slice(1, close));
    } else if (isLeading) {
      continue;
    } else {
      const before = name.slice(copied, index);
      text += before.endsWith("::") ? before.slice(0, -2) : before;
    }
    copied = close + 1;
    index = close;
  }
  return text + name.slice(copied);
}

function followsIdentifier(name: string, index: number): boolean {
  const before = name.slice(Math.max(0, index - 2), index);
  return before === "::" || /[\p{L}\p{N}_$]$/u.test(before);
}

function isOperator(name: string, index: number): boolean {
  return name.slice(Math.max(0, index - 9), index + 1).includes("operator<") || name.startsWith("<-", index);
}

/** Returns the index of the bracket that closes the one at `index`, or -1. Arrows do not close. */
function findClosing(name: string, index: number): number {
  let level = 0;
  for (let position = index; position < name.length; position++) {
    const character = name[position] as string;
    if (OPENING.includes(character)) level++;
    else if (
      CLOSING.includes(character) &&
      !(character === ">" && "-=".includes(name[position - 1] as string))
    ) {
      level--;
      if (level === 0) return position;
    }
  }
  return -1;
}

/** Returns `X` of the inside of `<X as Trait>`, without its own arguments. */
function implementingType(inside: string): string {
  let level = 0;
  let end = inside.length;
  for (let position = 0; position < inside.length; position++) {
    const character = inside[position] as string;
    if (OPENING.includes(character)) level++;
    else if (CLOSING.includes(character)) level--;
    else if (level === 0 && inside.startsWith(" as ", position)) {
      end = position;
      break;
    }
  }
  return removeTypeArguments(inside.slice(0, end));
}

const PARAMETERS_END = /\)( const)?( (noexcept|volatile|&&?))*$/;

/** Removes the parameters at the end of a C++ name. `(*T).Method` and `(anonymous namespace)` are no parameters. */
export function removeParameters(name: string): string {
  if (!PARAMETERS_END.test(name)) return name;
  let level = 0;
  for (let index = name.lastIndexOf(")"); index > 0; index--) {
    if (name[index] === ")") level++;
    else if (name[index] === "(" && --level === 0) {
      return /[\p{L}\p{N}_$>=~+\-*/]$/u.test(name.slice(0, index)) ? name.slice(0, index) : name;
    }
  }
  return name;
}

/** Lists shorter and shorter forms of a name, all ending as it ends. The first is the name itself. */
export function labelForms(name: string): string[] {
  const shown = showName(name.length > MAX_LABEL_CHARACTERS ? name.slice(-MAX_LABEL_CHARACTERS) : name);
  const { functionName, file, line } = splitLineFrame(shown);
  const forms = functionForms(functionName);
  if (line === "") return forms;
  const fileName = file.slice(file.lastIndexOf("/") + 1);
  return [
    shown,
    ...forms.map((form) => `${form} ${fileName}:${line}`),
    `${forms[forms.length - 1]} :${line}`,
  ];
}

/** Parts of the name of a frame in a graph of lines. `line` is empty for other frames. */
export interface LineFrame {
  readonly functionName: string;
  readonly file: string;
  readonly line: string;
}

const LINE_FRAME = /^(.*) (\S*):(\d+)$/s;

/** Splits the name of a frame in a graph of lines: `main.run /src/main.go:17`. */
export function splitLineFrame(name: string): LineFrame {
  const match = LINE_FRAME.exec(name);
  return { functionName: match?.[1] ?? name, file: match?.[2] ?? "", line: match?.[3] ?? "" };
}

function functionForms(shown: string): string[] {
  const forms = [shown];
  const add = (form: string) => {
    if (form !== "" && form.length < (forms[forms.length - 1] as string).length) forms.push(form);
  };
  const plain = removeRustHash(shown);
  add(plain);
  const generic = removeTypeArguments(plain);
  add(generic);
  const short = removeParameters(generic);
  add(short);
  for (const start of partStarts(short)) add(short.slice(start));
  return forms;
}

/** Host that begins a path of a Go module: lower-case labels, and a top-level domain of letters. */
const HOST = /^[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]+(?=\/)/;

/** Lists the indexes after each `/`, `.` or `::` outside of brackets. The dots of `github.com/` separate no parts. */
function partStarts(name: string): number[] {
  const starts: number[] = [];
  const hostLength = HOST.exec(name)?.[0].length ?? 0;
  let level = 0;
  for (let index = 0; index < name.length - 1; index++) {
    const character = name[index] as string;
    if (OPENING.includes(character)) level++;
    else if (CLOSING.includes(character)) level = Math.max(0, level - 1);
    else if (level > 0) continue;
    else if (character === "/") starts.push(index + 1);
    else if (character === "." && name[index + 1] !== "." && index >= hostLength) starts.push(index + 1);
    else if (character === ":" && name[index + 1] === ":") starts.push(++index + 1);
  }
  return starts.filter((start) => start < name.length);
}

/** Returns the longest label of a name that fits into a width, or the empty text. */
export function fitLabel(forms: readonly string[], width: number, measure: TextMeasure): string {
  let low = 0;
  let high = forms.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (measure(forms[middle] as string) <= width) high = middle;
    else low = middle + 1;
  }
  return forms[low] ?? shortenStart(forms[forms.length - 1] ?? "", width, measure);
}

/** Shortens a text to an ending that fits behind an ellipsis and, if possible, begins with a word. */
function shortenStart(text: string, width: number, measure: TextMeasure): string {
  const characters = Array.from(text);
  let low = 1;
  let high = characters.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (measure(`…${characters.slice(middle).join("")}`) <= width) high = middle;
    else low = middle + 1;
  }
  const start = wordStart(characters, low);
  if (start !== undefined) return `…${characters.slice(start).join("")}`;
  return characters.length - low < MIN_ENDING_CHARACTERS ? "" : `…${characters.slice(low).join("")}`;
}

/** Returns the index of the first word from `index` on, or undefined if that word would leave too little. */
function wordStart(characters: readonly string[], index: number): number | undefined {
  const least = Math.max(MIN_WORD_CHARACTERS, Math.ceil((characters.length - index) * MIN_WORD_SHARE));
  for (let start = index; characters.length - start >= least; start++) {
    if (beginsWord(characters[start - 1] as string, characters[start] as string)) return start;
  }
  return undefined;
}

/** Returns whether a word begins between two characters: `queue_xmit`, `reflectValue`, `entry64`. */
function beginsWord(before: string, first: string): boolean {
  if (!/[\p{L}\p{N}]/u.test(first)) return false;
  return !/[\p{L}\p{N}]/u.test(before) || (/\p{Ll}/u.test(before) && /[\p{Lu}\p{N}]/u.test(first));
}
