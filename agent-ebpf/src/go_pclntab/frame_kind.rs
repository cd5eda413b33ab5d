//! Functions of Go's runtime whose frames have rules of their own.

/// Flag of functions that set the stack pointer, such as those that switch stacks. Go 1.17 and later.
const WRITES_STACK_POINTER_FLAG: u8 = 2;
/// Flag of functions in assembly. Go 1.17 and later.
const ASSEMBLY_FLAG: u8 = 4;

/// Functions that nothing called: first on the stack of a thread or goroutine, or called on another stack that has no
/// way back.
const ROOT_NAMES: [&[u8]; 9] = [
    b"runtime.goexit",
    b"runtime.mstart",
    b"runtime.mcall",
    b"runtime.morestack",
    b"runtime.rt0_go",
    b"_rt0_amd64",
    b"_rt0_amd64_linux",
    b"_rt0_amd64_lib",
    b"_rt0_amd64_linux_lib",
];
/// Functions that call on another stack and keep the frame pointer of their own frame.
const STACK_SWITCH_NAMES: [&[u8]; 4] =
    [b"runtime.systemstack", b"runtime.asmcgocall", b"runtime.cgocallback", b"runtime.cgocallback_gofunc"];
/// Functions that signal handlers return to.
const SIGNAL_RETURN_NAMES: [&[u8]; 2] = [b"runtime.sigreturn__sigaction", b"runtime.sigreturn"];
/// Bytes that suffice to compare with every name above.
pub(super) const COMPARED_NAME_BYTES: usize = 32;

/// Rule for the frames of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// By the depth of the stack.
    Depth,
    /// By the depth of the stack, and the frame pointer may not be saved.
    AssemblyDepth,
    /// By frame pointer, once it is set.
    StackSwitch,
    /// Outermost frame.
    Root,
    /// The frame of a signal handler is above.
    SignalReturn,
}

/// Id and flags in the record of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionMarks {
    pub id: u8,
    pub flags: u8,
}

impl FunctionMarks {
    /// Returns whether the function may be one of those above, in a file of Go 1.18 or later.
    pub(super) fn may_be_special(self) -> bool {
        self.id != 0 || self.flags != 0
    }
}

impl FrameKind {
    pub(super) fn from_name(name: &[u8], marks: FunctionMarks) -> Self {
        if ROOT_NAMES.contains(&name) {
            Self::Root
        } else if SIGNAL_RETURN_NAMES.contains(&name) {
            Self::SignalReturn
        } else if STACK_SWITCH_NAMES.contains(&name) || marks.flags & WRITES_STACK_POINTER_FLAG != 0 {
            Self::StackSwitch
        } else if marks.flags & ASSEMBLY_FLAG != 0 {
            Self::AssemblyDepth
        } else {
            Self::Depth
        }
    }
}
