// Paths of frame names in a link: plain text if short, deflated and in base64url if long.
import { deflate, inflate } from "./deflate";

/** Longest path in names. The server truncates stacks at the same depth. */
export const MAX_PATH_NAMES = 512;
/** Longest path that stays plain text. */
export const MAX_PLAIN_CHARS = 500;
/** Longest compressed path. A request line has at most 64 KiB, and a link has two paths. */
export const MAX_ENCODED_CHARS = 20_000;
/** Largest path after decompression: 512 names of 10 kB, and their separators. */
export const MAX_DECODED_BYTES = 6_000_000;

const COMPRESSED_MARK = "~";
const BASE64_CHUNK_BYTES = 8_192;

// Links are made many times for one path, and paths are never changed in place.
const encodedPaths = new WeakMap<readonly string[], string>();

/** Encodes a path. If it is too long even when compressed, the frames farthest from the root are left out. */
export function encodePath(names: readonly string[]): string {
  const known = encodedPaths.get(names);
  if (known !== undefined) return known;
  const encoded = encodeLongestPart(names);
  encodedPaths.set(names, encoded);
  return encoded;
}

function encodeLongestPart(names: readonly string[]): string {
  let kept = names.slice(0, MAX_PATH_NAMES);
  for (;;) {
    const encoded = encodeWhole(kept);
    if (encoded.length <= MAX_ENCODED_CHARS) return encoded;
    kept = kept.slice(0, kept.length >> 1);
  }
}

function encodeWhole(names: readonly string[]): string {
  const text = joinNames(names);
  if (text.length <= MAX_PLAIN_CHARS) return text.startsWith(COMPRESSED_MARK) ? `\\${text}` : text;
  const bytes = new TextEncoder().encode(text);
  if (bytes.length > MAX_DECODED_BYTES) return " ".repeat(MAX_ENCODED_CHARS + 1);
  return COMPRESSED_MARK + toBase64Url(deflate(bytes));
}

/** Decodes a path. Returns undefined if the text is damaged or decompresses to more than the limits. */
export function decodePath(encoded: string): readonly string[] | undefined {
  const text = encoded.startsWith(COMPRESSED_MARK) ? decompress(encoded.slice(1)) : encoded;
  const names = text === undefined ? undefined : splitNames(text);
  return names === undefined || names.length > MAX_PATH_NAMES ? undefined : names;
}

function decompress(encoded: string): string | undefined {
  if (encoded.length > MAX_ENCODED_CHARS) return undefined;
  try {
    const bytes = inflate(fromBase64Url(encoded), MAX_DECODED_BYTES);
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

// Names are joined as in folded stacks.
function joinNames(names: readonly string[]): string {
  return names.map((name) => name.replace(/[\\;]/g, "\\$&")).join(";");
}

function splitNames(text: string): string[] {
  const names = [""];
  for (let index = 0; index < text.length; index++) {
    const char = text.charAt(index);
    if (char === ";") names.push("");
    else names[names.length - 1] += char === "\\" ? text.charAt(++index) : char;
    if (names.length > MAX_PATH_NAMES) break;
  }
  return names;
}

function toBase64Url(bytes: Uint8Array): string {
  let binary = "";
  for (let start = 0; start < bytes.length; start += BASE64_CHUNK_BYTES) {
    binary += String.fromCharCode(...bytes.subarray(start, start + BASE64_CHUNK_BYTES));
  }
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64Url(text: string): Uint8Array {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (char) => char.charCodeAt(0));
}
