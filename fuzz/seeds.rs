//! Writes the inputs that fuzzing starts from: `seeds FOLDER` makes a folder for each target.

use std::path::Path;

use athanor_profile::generate::arbitrary;
use athanor_profile::pprof::encode;

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
    Ok(())
}
