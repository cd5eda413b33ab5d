// Kinds of code: of the application, of the kernel, of a language runtime, or unknown.

import type { Graph } from "./graph";

export const CodeKind = { application: 0, kernel: 1, runtime: 2, unknown: 3 } as const;
export type CodeKind = (typeof CodeKind)[keyof typeof CodeKind];

const KERNEL_BINARY = /^(\[kernel.*\]|\[guest\.kernel.*\]|kernel|vmlinux.*|kallsyms|.+\.ko(\.(xz|gz|zst))?)$/;
const KERNEL_NAME =
  /(_\[k\]$|^(entry_SYSCALL|do_syscall_64|__x64_sys_|__do_sys_|__arm64_sys_|asm_exc_|asm_sysvec_|asm_common_interrupt|ret_from_fork|el0_|el1h_|el0t_))/;
const UNKNOWN_NAME = /^(\[?unknown\]?|<unknown>|\?+|0x[0-9a-fA-F]+|\(no name\))$/;
const RUNTIME_BINARY =
  /^(lib(jvm|c|m|pthread|dl|gcc_s|stdc\+\+|c\+\+|coreclr|clrjit|System\.Native|python[\d.]*|ruby|node|v8)([-.][^/]*)?\.(so|dylib)[\d.]*|ld-(linux|musl)[^/]*|ld\.so.*|\[vdso\]|linux-vdso.*)$/;
const RUNTIME_PACKAGE =
  /^(runtime(\/.*)?|internal\/runtime.*|std|core|alloc|java\.(lang|util)(\..*)?|jdk\.internal.*|sun\..*|System(\..*)?|node:internal.*)$/;
const RUNTIME_NAME =
  /^(runtime[./]|internal\/runtime\/|(<)?(std|core|alloc)::|__rust_|rust_begin|_start$|__libc_|__GI_|(m|c|re)alloc$|free$|java[./]lang[./]|java[./]util[./]|jdk[./]internal[./]|sun[./]|System\.(?=[A-Z])|<frozen |node:internal|\((garbage collector|program|idle|root)\)$)/;

/** Classifies code by the name of the function, by its binary and by its package. */
export function classifyCode(name: string, binary: string, packageName: string): CodeKind {
  // Names of binaries may end with a build id.
  const file = binary.slice(binary.lastIndexOf("/") + 1).replace(/@[0-9a-f]+$/i, "");
  if (KERNEL_BINARY.test(file) || KERNEL_NAME.test(name)) return CodeKind.kernel;
  // A frame without symbols is named after its address or its binary.
  if (name === "" || UNKNOWN_NAME.test(name)) return CodeKind.unknown;
  if (binary !== "" && (name === binary || name === file || name === `[${file}]`)) return CodeKind.unknown;
  if (RUNTIME_PACKAGE.test(packageName) || RUNTIME_NAME.test(name) || RUNTIME_BINARY.test(file)) {
    return CodeKind.runtime;
  }
  return CodeKind.application;
}

const UNCLASSIFIED = 255;

/** Kinds of the names of one graph. A name is classified when it is drawn: most names of a large graph never are. */
export class NameKinds {
  private readonly kinds: Uint8Array;

  constructor(private readonly graph: Graph) {
    this.kinds = new Uint8Array(graph.names.length).fill(UNCLASSIFIED);
  }

  kindOf(name: number): CodeKind {
    const known = this.kinds[name] as number;
    if (known !== UNCLASSIFIED) return known as CodeKind;
    const { graph } = this;
    const kind = classifyCode(
      graph.names[name] as string,
      graph.binaries[graph.nameBinary[name] as number] as string,
      graph.packages[graph.namePackage[name] as number] as string,
    );
    this.kinds[name] = kind;
    return kind;
  }
}
