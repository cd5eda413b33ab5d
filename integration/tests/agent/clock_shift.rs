//! Wall clock of a process that a test shifts while the process runs.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use athanor_integration::clients::{clients_folder, run_program};

/// Library that a process preloads, and the file with the shift of its wall clock.
pub struct ClockShift {
    library: PathBuf,
    file: PathBuf,
}

impl ClockShift {
    /// Compiles the library. The shift is 0.
    ///
    /// # Errors
    /// The compiler is missing or fails.
    pub fn build(folder: &Path) -> Result<Self, String> {
        let source = clients_folder().join("clock-shift/clock_shift.c");
        let library = folder.join("clock_shift.so");
        let arguments =
            ["-shared", "-fPIC", "-O1", "-o", library.to_str().unwrap(), source.to_str().unwrap()];
        run_program("cc", &arguments, folder)?;
        let file = folder.join("clock_shift");
        fs::write(&file, 0_i64.to_ne_bytes()).unwrap();
        Ok(Self { library, file })
    }

    /// Returns the environment of a process with this clock.
    pub fn variables(&self) -> Vec<(String, String)> {
        let variables = [("LD_PRELOAD", &self.library), ("CLOCK_SHIFT_FILE", &self.file)];
        variables.map(|(name, path)| (name.to_owned(), path.to_str().unwrap().to_owned())).into()
    }

    /// Lets the wall clock jump to a shift from the clock of the machine.
    pub fn set_seconds(&self, seconds: i64) {
        let nanos = seconds * 1_000_000_000;
        let mut file = File::options().write(true).open(&self.file).unwrap();
        file.write_all(&nanos.to_ne_bytes()).unwrap();
    }
}
