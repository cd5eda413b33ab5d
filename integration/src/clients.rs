//! Runs programs that use third-party clients, in temporary folders.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folder with the sources of these programs.
#[must_use]
pub fn clients_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// Runs a program until it exits and returns its standard output.
///
/// # Errors
/// If the program cannot start or exits with a failure: its name, its arguments and the reason or standard
/// error.
pub fn run_program(program: &str, arguments: &[&str], folder: &Path) -> Result<String, String> {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Copies source files of a client into its build folder.
///
/// # Errors
/// The file that could not be copied, and the reason.
///
/// # Panics
/// If `to` is no folder.
pub fn copy_files(client: &str, files: &[&str], to: &Path) -> Result<(), String> {
    for file in files {
        let to = to.join(file);
        let above = to.parent().expect("a file lies in a folder");
        std::fs::create_dir_all(above)
            .and_then(|()| std::fs::copy(clients_folder().join(client).join(file), &to))
            .map_err(|error| format!("{client}/{file}: {error}"))?;
    }
    Ok(())
}
