//! Stacks by framehop, over the sections of the same files.

use std::cell::RefCell;

use athanor_agent_ebpf::elf::ElfFile;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};

use super::process_image::ProcessImage;
use super::{OtherStack, ThreadSnapshot};

const MAX_SECTION_BYTES: u64 = 256 << 20;
const MAX_FRAMES: usize = 1024;

/// Unwinder of the threads of one process.
pub struct FramehopStacks {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: RefCell<CacheX86_64>,
}

impl FramehopStacks {
    /// Reads the call frame information of all files.
    pub fn of(image: &ProcessImage) -> Self {
        let mut unwinder = UnwinderX86_64::new();
        for file in &image.files {
            for range in &file.ranges {
                let sections = sections_of(&file.elf);
                unwinder.add_module(Module::new(file.path.clone(), range.clone(), file.bias, sections));
            }
        }
        Self { unwinder, cache: RefCell::new(CacheX86_64::new()) }
    }

    /// Unwinds a thread.
    pub fn unwind(&self, snapshot: &ThreadSnapshot) -> OtherStack {
        let state = &snapshot.state;
        let registers = UnwindRegsX86_64::new(state.ip, state.registers[7], state.registers[6]);
        let mut read = |address| snapshot.word_at(address).ok_or(());
        let mut cache = self.cache.borrow_mut();
        let mut walk = self.unwinder.iter_frames(state.ip, registers, &mut cache, &mut read);
        let mut frames = Vec::new();
        while frames.len() < MAX_FRAMES {
            match walk.next() {
                Ok(Some(frame)) => frames.push(frame.address_for_lookup()),
                Ok(None) => return OtherStack { frames, is_complete: true },
                Err(_) => break,
            }
        }
        OtherStack { frames, is_complete: false }
    }
}

fn sections_of(elf: &ElfFile) -> ExplicitModuleSectionInfo<Vec<u8>> {
    let bytes = |name: &str| {
        let section = elf.section(name).filter(|section| !section.is_compressed())?;
        elf.read_section(section, MAX_SECTION_BYTES).ok()
    };
    let range = |name: &str| elf.section(name).map(|section| section.address..section.address + section.size);
    ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(".text"),
        text: bytes(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: bytes(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: bytes(".eh_frame_hdr"),
        debug_frame: bytes(".debug_frame"),
        ..Default::default()
    }
}
