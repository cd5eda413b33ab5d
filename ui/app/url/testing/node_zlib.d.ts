// Functions of Node's zlib that tests compare with. The types of Node are no dependency.

declare module "node:zlib" {
  interface ZlibOptions {
    readonly level?: number;
    readonly strategy?: number;
  }
  interface NodeBytes extends Uint8Array<ArrayBuffer> {
    toString(encoding?: "base64url"): string;
  }
  export function deflateRawSync(input: Uint8Array, options?: ZlibOptions): NodeBytes;
  export function inflateRawSync(input: Uint8Array): NodeBytes;
}
