//! Writes the inputs that fuzzing starts from: `seeds FOLDER` makes a folder for each target.

use std::path::Path;

use athanor_block::{FILES, FORMAT, FileMeta, Meta, TenantMeta};
use athanor_profile::generate::arbitrary;
use athanor_profile::pprof::encode;
use libfuzzer_sys::fuzz_target;

// The crates below are built to report to a fuzzer, and a fuzzer wants a target; this program runs neither.
fuzz_target!(|_bytes: &[u8]| {});

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "corpus".to_owned());
    let save = |target: &str, name: &str, content: &[u8]| {
        let folder = Path::new(&folder).join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), content)
    };
    for seed in 0..100 {
        save("pprof", &format!("seed-{seed}"), &encode(&arbitrary(seed)))?;
    }
    for (number, text) in ["pod=a-1", "a.b-c = x=y", "1a=b", "größe=1", "=", "_=", " x "].iter().enumerate()
    {
        save("labels", &format!("seed-{number}"), text.as_bytes())?;
    }
    let stacks = ["a;b 1\na;b;c 2\n", "main 9223372036854775807\nmain 1\n", " 3\r\n;; 1\n", "a 1"];
    for (number, text) in stacks.iter().enumerate() {
        save("folded", &format!("seed-{number}"), text.as_bytes())?;
    }
    let selectors =
        ["{}", r#"{a="b", c!="d"}"#, r#"{a=~"x.*|y", f!~`\d+`,}"#, r#"{"ein name"='\u00e4\x41\n'}"#];
    for (number, text) in selectors.iter().enumerate() {
        save("selector", &format!("seed-{number}"), text.as_bytes())?;
    }
    let names =
        ["app.cpu{pod=a-1, region = eu}", "name=app%7Bk%3Dv%7D&from=now-1h&sampleRate=97", "a{v={x},w=1}"];
    for (number, text) in names.iter().enumerate() {
        save("ingest-name", &format!("seed-{number}"), text.as_bytes())?;
    }
    let form = "--b\r\nContent-Disposition: form-data; name=\"profile\"\r\n\r\nx\r\n--b--\r\n";
    save("multipart", "seed", form.as_bytes())?;
    let mut meta = Meta { format: FORMAT, id: "seed".into(), ..Meta::default() };
    for file in FILES {
        meta.files.insert(file.into(), FileMeta { bytes: 3, checksums: vec![7] });
    }
    for tenants in 0..3 {
        let sealed = String::from_utf8_lossy(&meta.encode()).into_owned();
        let inner = sealed.split_once("\"meta\":").map_or("", |(_, inner)| &inner[..inner.len() - 1]);
        save("meta", &format!("sealed-{tenants}"), sealed.as_bytes())?;
        save("meta", &format!("inner-{tenants}"), inner.as_bytes())?;
        meta.tenants.push(TenantMeta { tenant: format!("t{tenants}"), ..TenantMeta::default() });
    }
    for file in 0..=FILES.len() as u8 {
        for block in 0..4 {
            save("block", &format!("seed-{file}-{block}"), &[block * 2, file, 40, 0, 1, 9, 1, 255])?;
        }
    }
    Ok(())
}
