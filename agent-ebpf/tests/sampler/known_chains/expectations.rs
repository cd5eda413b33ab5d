//! Table of programs and their call chains.

use std::path::{Path, PathBuf};

use athanor_agent_ebpf::layout::StackEnd;

use crate::programs::ProgramBuild;
use crate::sampled_stacks::{NamedStack, has_word};

/// Longer than the run: the test ends the programs.
const SECONDS: &str = "600";

/// Expected chain of functions.
#[derive(Clone, Copy, Debug)]
pub struct ChainMatch {
    /// Functions, outermost first.
    pub functions: &'static [&'static str],
    /// The functions are all of the program's own, not just some of the stack's in their order.
    pub is_exact: bool,
    /// Minimum share of the program's samples.
    pub min_share: f64,
}

/// Program of the run.
#[derive(Clone, Copy, Debug)]
pub struct KnownProgram {
    /// Build.
    pub build: ProgramBuild,
    /// Kind of command line.
    pub command: ProgramCommand,
    /// Expected end of stacks.
    pub end: StackEnd,
    /// Minimum share of samples with this end.
    pub min_share: f64,
    /// Maximum share of samples with other chains than these.
    pub max_unknown_share: f64,
    /// Chains.
    pub chains: &'static [ChainMatch],
    /// Outermost functions, or files of outermost frames without a name.
    pub roots: &'static [&'static str],
}

/// Command line of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramCommand {
    /// The built program with the length of the run.
    Seconds,
    /// The same, with the paths of two libraries.
    WithLibraries,
    /// `node` on the built file.
    Node,
    /// As `Seconds`, if the headers of libcrypto are there.
    WithCrypto,
}

const fn exact(min_share: f64, functions: &'static [&'static str]) -> ChainMatch {
    ChainMatch { functions, is_exact: true, min_share }
}

const fn in_order(min_share: f64, functions: &'static [&'static str]) -> ChainMatch {
    ChainMatch { functions, is_exact: false, min_share }
}

const fn program(build: ProgramBuild, chains: &'static [ChainMatch]) -> KnownProgram {
    KnownProgram {
        build,
        command: ProgramCommand::Seconds,
        end: StackEnd::Complete,
        min_share: 0.99,
        max_unknown_share: 0.02,
        chains,
        roots: &["_start"],
    }
}

const fn go(
    name: &'static str,
    folder: &'static [&'static str],
    arguments: &'static [&'static str],
) -> ProgramBuild {
    ProgramBuild { name, tool: "go", sources: folder, headers: &[], arguments, libraries: &[] }
}

const fn library(name: &'static str, define: &'static [&'static str]) -> ProgramBuild {
    ProgramBuild {
        name,
        tool: "cc",
        sources: &["library.c"],
        headers: &["burn.h"],
        arguments: define,
        libraries: &[],
    }
}

const FIRST_LIBRARY: ProgramBuild = library("libalpha.so", &["-shared", "-fPIC", "-DNAME=alpha"]);
const SECOND_LIBRARY: ProgramBuild = library("libbeta.so", &["-shared", "-fPIC", "-DNAME=beta"]);

const CHAINS_OF_C: &[ChainMatch] = &[
    exact(0.15, &["_start", "main", "sort_numbers", "compare_numbers"]),
    exact(0.03, &["_start", "main", "use_alloca", "leaf_of_alloca"]),
    exact(0.03, &["_start", "main", "use_realigned", "leaf_of_realigned"]),
    exact(0.06, &["_start", "main", "use_cold.cold", "leaf_of_cold"]),
    exact(0.03, &["_start", "main", "use_recursion", "descend"]),
    exact(0.03, &["_start", "main", "use_recursion"]),
];

/// musl is built without unwind tables, so no callback goes through its sort.
const CHAINS_OF_MUSL: &[ChainMatch] = &[
    in_order(0.05, &["main", "use_alloca", "leaf_of_alloca"]),
    in_order(0.05, &["main", "use_realigned", "leaf_of_realigned"]),
    in_order(0.10, &["main", "use_cold", "leaf_of_cold"]),
    in_order(0.05, &["main", "use_recursion", "descend"]),
];

/// Argument of Go's linker for a `.debug_frame` that other unwinders can read.
const READABLE_DEBUG_FRAME: &[&str] = &["-ldflags=-compressdwarf=false"];
const CHAINS_OF_GO: &[ChainMatch] = &[
    in_order(0.2, &["runtime.goexit", "main.runGoroutine", "main.descend"]),
    in_order(0.1, &["runtime.goexit", "runtime.main", "main.main", "Less", "main.leafOfSort"]),
    in_order(0.03, &["runtime.goexit", "runtime.main", "main.main", "main.callDeferred", "main.leafOfDefer"]),
];

/// A libc without symbols does not name where its threads begin.
const ROOTS_OF_THREADS: &[&str] = &["_start", "libc.so.6", "clone", "clone3", "__clone3"];

const ROOTS_OF_GO: &[&str] = &[
    "runtime.goexit",
    "runtime.rt0_go",
    "runtime.mstart",
    "runtime.mcall",
    "runtime.morestack",
    "runtime.systemstack",
    "_rt0_amd64_linux",
    "runtime.asmcgocall",
    "runtime.clone",
    "_start",
    "libc.so.6",
    "clone",
    "clone3",
    "__clone3",
    "crosscall1",
];

/// C program with musl inside.
const STATIC_PROGRAM: ProgramBuild = ProgramBuild {
    name: "musl_static",
    tool: "musl-gcc",
    sources: &["chains.c"],
    headers: &["burn.h"],
    arguments: &["-static", "-DWITHOUT_SORT"],
    libraries: &[],
};

/// Returns the build of a library with `enter_library`.
pub fn first_library() -> ProgramBuild {
    FIRST_LIBRARY
}

/// Returns the build of a static C program.
pub fn static_program() -> ProgramBuild {
    STATIC_PROGRAM
}

/// Returns the build of the C program.
pub fn program_of_c() -> ProgramBuild {
    KNOWN_PROGRAMS[0].build
}

/// Returns the chains of the C program.
pub fn chains_of_c() -> &'static [ChainMatch] {
    CHAINS_OF_C
}

/// All programs.
pub const KNOWN_PROGRAMS: &[KnownProgram] = &[
    program(ProgramBuild::c("chains", &["chains.c"]), CHAINS_OF_C),
    KnownProgram {
        end: StackEnd::Truncated,
        max_unknown_share: 1.0,
        ..program(
            ProgramBuild::c("too_deep", &["too_deep.c"]),
            &[in_order(0.9, &["descend", "descend", "descend"])],
        )
    },
    KnownProgram {
        // While the kernel returns from a handler, some registers are those of the handler and some of the code below.
        min_share: 0.99,
        max_unknown_share: 0.1,
        ..program(
            ProgramBuild::c("signals", &["signals.c"]),
            &[
                exact(0.1, &["_start", "main", "call_interrupted", "interrupted_work"]),
                in_order(
                    0.05,
                    &[
                        "_start",
                        "main",
                        "call_interrupted",
                        "interrupted_work",
                        "on_alarm",
                        "leaf_of_handler",
                    ],
                ),
                in_order(
                    0.02,
                    &[
                        "_start",
                        "main",
                        "call_interrupted",
                        "interrupted_work",
                        "on_own_stack",
                        "leaf_of_handler",
                    ],
                ),
            ],
        )
    },
    KnownProgram {
        max_unknown_share: 1.0,
        ..program(
            ProgramBuild {
                name: "exceptions",
                tool: "g++",
                sources: &["exceptions.cc"],
                headers: &["burn.h"],
                arguments: &[],
                libraries: &[],
            },
            &[
                in_order(0.07, &["main", "catching_call", "guarded_call", "leaf_that_throws"]),
                in_order(0.07, &["main", "catching_call", "guarded_call", "leaf_of_destructor"]),
                in_order(0.07, &["main", "catching_call", "leaf_of_handler"]),
                in_order(0.1, &["main", "sort_numbers", "compare_numbers"]),
            ],
        )
    },
    KnownProgram {
        roots: ROOTS_OF_THREADS,
        ..program(
            ProgramBuild { libraries: &["-pthread"], ..ProgramBuild::c("threads", &["threads.c"]) },
            &[exact(0.9, &["run_thread", "leaf_of_thread"])],
        )
    },
    KnownProgram {
        max_unknown_share: 1.0,
        ..program(
            ProgramBuild::c("clock", &["clock.c"]),
            // One function of this name is that of the C library, the other one that of the vdso.
            &[in_order(0.5, &["_start", "main", "read_clock", "clock_gettime", "clock_gettime"])],
        )
    },
    program(
        ProgramBuild::c("anonymous_code", &["anonymous_code.c"]),
        &[
            exact(0.2, &["_start", "main", "call_generated", "[anonymous]"]),
            exact(0.2, &["_start", "main", "call_generated", "[anonymous]", "called_back"]),
        ],
    ),
    KnownProgram {
        command: ProgramCommand::WithLibraries,
        max_unknown_share: 1.0,
        ..program(
            ProgramBuild { libraries: &["-ldl"], ..ProgramBuild::c("library_loop", &["library_loop.c"]) },
            &[
                // The two libraries take turns at one address. Until a change of mappings is read, code of one counts
                // as the same place of the other.
                in_order(0.9, &["main", "call_library", "enter_library"]),
            ],
        )
    },
    KnownProgram {
        max_unknown_share: 1.0,
        ..program(ProgramBuild::c("short_lived", &["short_lived.c"]), &[])
    },
    KnownProgram {
        max_unknown_share: 1.0,
        roots: ROOTS_OF_THREADS,
        ..program(
            ProgramBuild {
                name: "burn_rust",
                tool: "rustc",
                sources: &["burn.rs"],
                headers: &[],
                arguments: &[],
                libraries: &[],
            },
            &[
                in_order(0.05, &["_start", "main", "call_boxed", "leaf_of_closure"]),
                in_order(0.15, &["_start", "main", "sort_numbers", "leaf_of_sort"]),
                in_order(0.3, &["leaf_of_thread"]),
            ],
        )
    },
    KnownProgram {
        max_unknown_share: 1.0,
        roots: ROOTS_OF_GO,
        ..program(go("go_plain", &["go_plain"], READABLE_DEBUG_FRAME), CHAINS_OF_GO)
    },
    KnownProgram {
        max_unknown_share: 1.0,
        roots: ROOTS_OF_GO,
        ..program(go("go_stripped", &["go_plain"], &["-ldflags=-s -w"]), CHAINS_OF_GO)
    },
    KnownProgram {
        max_unknown_share: 1.0,
        roots: ROOTS_OF_GO,
        ..program(
            go("go_cgo", &["go_cgo"], READABLE_DEBUG_FRAME),
            &[
                in_order(0.3, &["main.enterC", "runtime.cgocall", "call_leaf_in_c", "leaf_in_c"]),
                in_order(0.3, &["main.enterC", "runtime.cgocall", "call_back_from_c", "main.leafOfCallback"]),
            ],
        )
    },
    KnownProgram {
        max_unknown_share: 1.0,
        roots: &["_start", "libc_start_main_stage2"],
        ..program(STATIC_PROGRAM, CHAINS_OF_MUSL)
    },
    KnownProgram {
        max_unknown_share: 1.0,
        // The first function of musl jumps to the one that calls main.
        roots: &["_start", "libc.so", "ld-musl-x86_64.so.1"],
        ..program(
            ProgramBuild {
                name: "musl_dynamic",
                tool: "musl-gcc",
                sources: &["chains.c"],
                headers: &["burn.h"],
                arguments: &["-DWITHOUT_SORT"],
                libraries: &[],
            },
            CHAINS_OF_MUSL,
        )
    },
    KnownProgram {
        command: ProgramCommand::WithCrypto,
        min_share: 0.95,
        max_unknown_share: 1.0,
        ..program(
            ProgramBuild { libraries: &["-lcrypto"], ..ProgramBuild::c("openssl", &["crypto.c"]) },
            &[
                in_order(0.1, &["_start", "main", "hash_block"]),
                in_order(0.02, &["_start", "main", "encrypt_block", "EVP_EncryptUpdate"]),
                in_order(0.1, &["_start", "main", "sign_block"]),
            ],
        )
    },
    KnownProgram {
        command: ProgramCommand::Node,
        min_share: 0.95,
        max_unknown_share: 1.0,
        roots: &["_start", "libc.so.6", "clone", "clone3", "__clone3", "node"],
        ..program(
            ProgramBuild {
                name: "burn.js",
                tool: "node",
                sources: &["burn.js"],
                headers: &[],
                arguments: &[],
                libraries: &[],
            },
            &[in_order(
                0.8,
                &["node::Start", "Builtins_JSEntry", "Builtins_ArrayPrototypeSort", "[anonymous]"],
            )],
        )
    },
];

impl KnownProgram {
    /// Builds the program. Returns what to start, or None after a skip line.
    pub fn prepare(&'static self) -> Option<(&'static Self, PathBuf, Vec<String>)> {
        let test = super::TEST;
        let (path, arguments) = match self.command {
            ProgramCommand::Seconds => (self.build.build(test)?, vec![SECONDS.to_owned()]),
            ProgramCommand::WithLibraries => {
                let libraries = [FIRST_LIBRARY.build(test)?, SECOND_LIBRARY.build(test)?];
                let mut arguments = vec![SECONDS.to_owned()];
                arguments.extend(libraries.iter().map(|path| path.display().to_string()));
                (self.build.build(test)?, arguments)
            }
            ProgramCommand::Node => {
                if !crate::requirements::has_tool(test, "node") {
                    return None;
                }
                let script = crate::programs::sources_folder().join("burn.js").display().to_string();
                (PathBuf::from("node"), vec![script, SECONDS.to_owned()])
            }
            ProgramCommand::WithCrypto => {
                if !Path::new("/usr/include/openssl/evp.h").exists() {
                    println!("skip: {test}: no headers of libcrypto");
                    return None;
                }
                (self.build.build(test)?, vec![SECONDS.to_owned()])
            }
        };
        Some((self, path, arguments))
    }

    /// Returns the number of samples that a verdict needs. The parent of short-lived processes waits most of the time.
    pub fn min_samples(&self, usual: u64) -> u64 {
        if self.build.name == "short_lived" { 0 } else { usual }
    }

    /// Returns whether a complete stack begins where a thread of the program begins.
    pub fn is_root(&self, stack: &NamedStack) -> bool {
        stack.frames.first().is_some_and(|root| {
            self.roots.iter().any(|name| {
                has_word(&root.function, name)
                    || root.function.is_empty()
                        && (root.file.ends_with(name) || root.file.contains(&format!("/{name}")))
            })
        })
    }
}
