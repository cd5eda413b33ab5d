use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use proptest::prelude::*;

use super::test_image::{CODE_ADDRESS, TestImage, note};
use super::{BoundedFile, BuildId, ByteReader, ElfError, ElfFile, MemoryImage, ReadAt, ReadError};

fn open(image: &TestImage) -> ElfFile {
    ElfFile::open(Arc::new(MemoryImage(image.build()))).unwrap()
}

fn image() -> TestImage {
    TestImage { code: vec![0x90; 0x3000], frame: vec![0; 100], ..TestImage::default() }
}

#[test]
fn file_without_sections_has_segments() {
    let file = open(&image());
    assert_eq!(file.sections(), []);
    assert_eq!(file.code_segments().count(), 1);
    assert_eq!(file.read_address(CODE_ADDRESS + 0x2ffe, 10).unwrap(), [0x90, 0x90]);
    assert!(file.read_address(CODE_ADDRESS + 0x3000, 10).unwrap().is_empty());
    assert!(!file.is_fixed_executable());
}

#[test]
fn build_id_of_any_length_is_found() {
    for length in [1, 7, 16, 20, 32, 64] {
        let id: Vec<u8> = (0..length).collect();
        let notes =
            [note(b"other\0", 3, b"x"), note(b"Go\0\0", 4, b"go/id"), note(b"GNU\0", 3, &id)].concat();
        let file = open(&TestImage { notes, ..image() });
        assert_eq!(file.build_id().unwrap(), BuildId::Gnu(id.into()));
    }
    let file = open(&TestImage { notes: note(b"Go\0\0", 4, b"go/id"), ..image() });
    assert_eq!(file.build_id().unwrap(), BuildId::Go((*b"go/id").into()));
    assert_eq!(file.build_id().unwrap().to_string(), "676f2f6964");
}

#[test]
fn build_id_in_section_is_found() {
    let bytes = note(b"GNU\0", 3, b"\x01\xff");
    let sections = vec![(".note.gnu.build-id", 7, 2, 0, bytes)];
    assert_eq!(open(&TestImage { sections, ..image() }).build_id().unwrap().to_string(), "01ff");
}

#[test]
fn build_id_of_file_without_notes_depends_on_ends_and_size() {
    let base = TestImage { frame: vec![0; 0x3000], ..image() };
    let hash = |image: &TestImage| open(image).build_id().unwrap();
    let expected = hash(&base);
    assert!(matches!(expected, BuildId::Hash(_)));
    assert_eq!(hash(&base), expected);
    let mut middle = base.clone();
    middle.code[0x1000] = 0xcc;
    assert_eq!(hash(&middle), expected);
    let mut end = base.clone();
    *end.frame.last_mut().unwrap() = 1;
    assert_ne!(hash(&end), expected);
    let longer = TestImage { frame: vec![0; 0x3001], ..base };
    assert_ne!(hash(&longer), expected);
}

#[test]
fn bias_of_neighboring_segments_matches_the_code_segment() {
    // As LLD writes them: segments share pages of the file, and each is one more page away from its offset.
    let mut bytes = image().build();
    let mut set =
        |position: usize, value: u64| bytes[position..position + 8].copy_from_slice(&value.to_le_bytes());
    let [code, other] = [64, 64 + 56];
    set(code + 8, 0x1a40);
    set(code + 16, 0x2_2a40);
    set(code + 32, 0x1800);
    set(other + 8, 0x200);
    set(other + 16, 0x2_0200);
    set(other + 32, 0x1840);
    let file = ElfFile::open(Arc::new(MemoryImage(bytes))).unwrap();
    let base = 0x7f00_0000_0000u64;
    // The kernel maps whole pages: file offset 0x1000 lies at 0x2_2000.
    assert_eq!(file.bias_of(base + 0x2_2000, 0x1000, 0x3000), Some(base));
    assert_eq!(file.bias_of(base + 0x2_3000, 0x2000, 0x1000), Some(base));
    assert_eq!(file.bias_of(base + 0x2_0000, 0, 0x1000), Some(base));
    assert_eq!(file.bias_of(base, 0x10_0000, 0x1000), None);
    assert_eq!(file.bias_of(u64::MAX, u64::MAX, u64::MAX), None);
}

#[test]
fn facts_name_rust_before_c_and_go_before_both() {
    let comment = b"Linker: LLD 21\0GCC: (Debian 12)\0rustc version 1.95.0\0".to_vec();
    let mut image = TestImage { sections: vec![(".comment", 1, 0, 0, comment)], ..image() };
    let facts = open(&image).facts();
    assert_eq!(facts.compiler, "rustc version 1.95.0");
    assert!(facts.is_static && facts.is_stripped);
    image.sections = vec![(".comment", 1, 0, 0, b"Linker: LLD 21\0GCC: (Debian 12)".to_vec())];
    assert_eq!(open(&image).facts().compiler, "GCC: (Debian 12)");
    let mut info = b"\xff Go buildinf:\x08\x02".to_vec();
    info.resize(32, 0);
    info.extend(b"\x08go1.22.1rest");
    image.code = info;
    image.sections.push((".go.buildinfo", 1, 2, CODE_ADDRESS, Vec::new()));
    image.sections.push((".symtab", 2, 0, 0, vec![0; 24]));
    let facts = open(&image).facts();
    assert_eq!(facts.compiler, "go1.22.1");
    assert!(!facts.is_stripped);
}

#[test]
fn facts_of_files_of_this_machine() {
    let open = |path: &str| {
        let file = File::open(path).ok().map(|file| BoundedFile::new(file).unwrap());
        file.map(|file| ElfFile::open(Arc::new(file)).unwrap())
    };
    if let Some(libc) = open("/lib/x86_64-linux-gnu/libc.so.6") {
        assert_eq!(libc.build_id().unwrap().bytes().len(), 20);
        assert!(libc.facts().is_stripped);
    }
    if let Some(go) = open("/usr/local/go/bin/go") {
        let facts = go.facts();
        assert!(facts.compiler.starts_with("go1."), "{}", facts.compiler);
        assert!(facts.is_static);
    }
    let own = open("/proc/self/exe").unwrap().facts();
    assert!(own.compiler.starts_with("rustc version"), "{}", own.compiler);
    assert!(!own.is_static && !own.is_stripped);
}

#[test]
fn other_files_are_refused() {
    let refused = |bytes: Vec<u8>| ElfFile::open(Arc::new(MemoryImage(bytes))).unwrap_err().to_string();
    let mut bytes = image().build();
    bytes[18] = 183;
    assert!(refused(bytes.clone()).starts_with("machine is 0xb7, need 62 (x86-64)"));
    bytes[4] = 1;
    assert!(refused(bytes.clone()).starts_with("class is 0x1"));
    bytes[0] = b'#';
    assert!(refused(bytes).starts_with("magic is"));
    assert!(refused(vec![0x7f]).starts_with("file has 1 bytes"));
    let mut many = image().build();
    many[56..58].copy_from_slice(&2000u16.to_le_bytes());
    let error = ElfFile::open(Arc::new(MemoryImage(many))).unwrap_err();
    assert!(matches!(error, ElfError::TooMany { count: 2000, limit: 1170, .. }), "{error}");
}

#[test]
fn reads_are_bounded() {
    let (socket, _other) = UnixStream::pair().unwrap();
    let socket: std::os::fd::OwnedFd = socket.into();
    assert!(matches!(BoundedFile::new(File::from(socket)), Err(ReadError::NotRegular)));
    let file = tempfile::tempfile().unwrap();
    file.set_len(100).unwrap();
    let bounded = BoundedFile::new(file.try_clone().unwrap()).unwrap();
    assert_eq!(bounded.read_vec(90, 10, 10).unwrap().len(), 10);
    assert!(matches!(bounded.read_vec(90, 11, 20), Err(ReadError::OutOfRange { .. })));
    assert!(matches!(bounded.read_vec(u64::MAX, 11, 20), Err(ReadError::OutOfRange { .. })));
    assert!(matches!(bounded.read_vec(0, 11, 10), Err(ReadError::TooLong { .. })));
    assert_eq!(bounded.read_up_to(95, 1000).unwrap().len(), 5);
    file.set_len(10).unwrap();
    assert!(matches!(bounded.read_vec(0, 20, 20), Err(ReadError::Io { .. })));
}

#[test]
fn numbers_in_base_128_are_read() {
    let unsigned = |bytes: &[u8]| ByteReader::new(bytes).uleb128();
    let signed = |bytes: &[u8]| ByteReader::new(bytes).sleb128();
    assert_eq!(unsigned(&[0xe5, 0x8e, 0x26]), Some(624_485));
    assert_eq!(unsigned(&[0xff; 9]), None);
    assert_eq!(unsigned(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Some(u64::MAX));
    assert_eq!(unsigned(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), None);
    assert_eq!(signed(&[0x78]), Some(-8));
    assert_eq!(signed(&[0xa0, 0x01]), Some(160));
    assert_eq!(signed(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f]), Some(i64::MIN));
}

proptest! {
    #[test]
    fn damaged_files_do_not_panic(changes in prop::collection::vec((0usize..0x400, any::<u8>()), 1..20), end in 0usize..0x8000) {
        let notes = note(b"GNU\0", 3, b"0123456789");
        let sections = vec![(".comment", 1, 0, 0, b"GCC".to_vec()), (".go.buildinfo", 1, 2, CODE_ADDRESS, vec![])];
        let mut bytes = TestImage { notes, sections, ..image() }.build();
        let length = bytes.len();
        for (position, byte) in changes {
            // Headers are at the start, sections and their table at the end.
            let position = if position < 0x200 { position } else { length - (position - 0x1ff) };
            bytes[position] = byte;
        }
        bytes.truncate(end.max(64));
        if let Ok(file) = ElfFile::open(Arc::new(MemoryImage(bytes))) {
            drop(file.facts());
            drop(file.build_id());
            file.bias_of(0, 0, u64::MAX);
            prop_assert!(file.read_address(file.entry(), 100).unwrap_or_default().len() <= 100);
        }
    }
}
