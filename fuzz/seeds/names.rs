//! Seeds of what names are read from: function tables of Go, symbol tables and symbols of the kernel.

const KALLSYMS: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _text
ffffffff81000100 T __pfx_vfs_read
ffffffff81000110 T vfs_read
ffffffff81000110 t vfs_read_alias
ffffffff82000000 T _etext
ffffffffc0201000 t ext4_read\t[ext4]
ffffffffc0201200 t bpf_prog_6deef7357e7b4530\t[bpf]
";
const SYMBOLS: [&str; 8] = [
    "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
    "_RNvNtCs1234_7mycrate3foo3bar",
    "_RINvNtC3std3mem8align_ofNtNtC3std3mem12DiscriminantE",
    "_ZNSt6vectorIiSaIiEE9push_backEOi",
    "_ZZN1N1fEiEs_0",
    "_Z1fI1aS_NS_IS0_S0_EEvT_",
    "memcpy@@GLIBC_2.14",
    "msort_with_tmp.part.0",
];
const NAMES: [&str; 4] = ["main.main", "runtime.systemstack", "crypto.block", "runtime.sigreturn"];
const MAGICS: [u32; 4] = [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1];
const CODE_ADDRESS: u64 = 0x1000;
const FUNCTION_BYTES: u64 = 0x40;
const RECORD_BYTES: usize = 64;

/// Saves all of them.
pub fn seeds(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    save("kallsyms", "seed", KALLSYMS.as_bytes())?;
    for (number, symbol) in SYMBOLS.iter().enumerate() {
        save("kallsyms", &format!("symbol-{number}"), symbol.as_bytes())?;
    }
    save("elf-symbols", "seed", &symbol_table())?;
    for (version, magic) in MAGICS.into_iter().enumerate() {
        for first in [0, 1] {
            let table = [&[first][..], &function_table(version, magic)].concat();
            save("pclntab", &format!("seed-{version}-{first}"), &table)?;
        }
    }
    Ok(())
}

/// Symbol table of functions, one after the other, with a label in each.
fn symbol_table() -> Vec<u8> {
    let mut symbols = vec![0; 24];
    let mut names = vec![0];
    for (index, symbol) in (0u64..).zip(SYMBOLS) {
        for (info, size) in [(0x12, 0x200u64), (0, 0)] {
            symbols.extend((names.len() as u32).to_le_bytes());
            symbols.extend([info, 0, 1, 0]);
            symbols.extend((CODE_ADDRESS + index * 0x200 + 0x100 - size / 2).to_le_bytes());
            symbols.extend(size.to_le_bytes());
        }
        names.extend(symbol.bytes());
        names.push(0);
    }
    [&(symbols.len() as u16).to_le_bytes()[..], &symbols, &names].concat()
}

/// Function table of a version of Go. Names follow the header, then depths, entries and records.
fn function_table(version: usize, magic: u32) -> Vec<u8> {
    let is_relative = version >= 2;
    let field_bytes = if is_relative { 4 } else { 8 };
    let base = if is_relative { 0 } else { CODE_ADDRESS };
    let [names_at, depths_at, entries_at, records_at] = [0x60u64, 0xb0, 0xc0, 0x110];
    let entries_at = if version == 0 { 16 } else { entries_at };
    let functions_at = if version == 0 { 0 } else { entries_at };
    let [names_base, depths_base] = if version == 0 { [names_at, depths_at] } else { [0, 0] };
    let count = NAMES.len() as u64;
    let words = match version {
        0 => vec![count],
        1 => vec![count, 0, names_at, 0, 0, depths_at, functions_at],
        _ => vec![count, 0, CODE_ADDRESS, names_at, 0, 0, depths_at, functions_at],
    };
    let mut table = magic.to_le_bytes().to_vec();
    table.extend([0, 0, 1, 8]);
    words.iter().for_each(|word| table.extend(word.to_le_bytes()));
    let field = |value: u64| value.to_le_bytes()[..field_bytes].to_vec();
    let mut entries = Vec::new();
    let mut records = Vec::new();
    let mut names = Vec::new();
    for (index, name) in (0..).zip(NAMES) {
        let start = base + index * FUNCTION_BYTES;
        entries.extend(field(start));
        entries.extend(field(records_at + records.len() as u64 - functions_at));
        let mut record = field(start);
        record.extend((names_base as u32 + names.len() as u32).to_le_bytes());
        record.extend([0; 8]);
        record.extend((depths_base as u32 + 1).to_le_bytes());
        record.resize(RECORD_BYTES, 0);
        // Id and flags, wherever the version has them.
        record[field_bytes + 28..field_bytes + 40].fill(index as u8);
        records.extend(record);
        names.extend(name.bytes());
        names.push(0);
    }
    entries.extend(field(base + count * FUNCTION_BYTES));
    let mut place = |at: u64, content: &[u8]| {
        let end = at as usize + content.len();
        table.resize(table.len().max(end), 0);
        table[at as usize..end].copy_from_slice(content);
    };
    place(entries_at, &entries);
    // Depths by pc: 0 for one byte, 8 for four, 40 for 40, then 0.
    place(depths_at + 1, &[2, 1, 16, 4, 64, 40, 79, 19, 0]);
    place(names_at, &names);
    place(records_at, &records);
    table
}
