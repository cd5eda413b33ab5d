//! Frames of a stack, as the BPF program encodes them.

use crate::layout::{
    FRAME_ADDRESS_MASK, FRAME_FILE_ADDRESS_MASK, FRAME_FILE_BIT, FRAME_FILE_MASK, FRAME_FILE_SHIFT,
    FRAME_KERNEL_BIT, FRAME_POINTER_BIT,
};

/// Dense number of an object file. 0 is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Code of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameCode {
    /// Address in the kernel.
    Kernel(u64),
    /// Address in an object file, as ELF virtual address.
    File {
        /// Object file.
        file: FileId,
        /// ELF virtual address.
        address: u64,
    },
    /// Address of a process outside of known files.
    Other(u64),
}

/// Frame of a stack, packed into 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedFrame(pub u64);

impl PackedFrame {
    /// Returns the code of the frame.
    pub fn code(self) -> FrameCode {
        if self.0 & FRAME_KERNEL_BIT != 0 {
            FrameCode::Kernel(self.0)
        } else if self.0 & FRAME_FILE_BIT != 0 {
            let file = (self.0 >> FRAME_FILE_SHIFT) & FRAME_FILE_MASK;
            FrameCode::File { file: FileId(file as u32), address: self.0 & FRAME_FILE_ADDRESS_MASK }
        } else {
            FrameCode::Other(self.0 & FRAME_ADDRESS_MASK)
        }
    }

    /// Returns the frame without its mark.
    pub fn unmarked(self) -> Self {
        if self.0 & FRAME_KERNEL_BIT != 0 { self } else { Self(self.0 & !FRAME_POINTER_BIT) }
    }

    /// Returns whether the caller was found by frame pointer because the code has no unwind row.
    pub fn is_frame_pointer(self) -> bool {
        self.0 & FRAME_KERNEL_BIT == 0 && self.0 & FRAME_POINTER_BIT != 0
    }
}
