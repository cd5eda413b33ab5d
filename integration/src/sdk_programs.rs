//! Programs that send their profiles with real SDKs, and the set-up that each needs.
//!
//! A program that sends now and then prints `done` and exits at the end of its input. Others have sent everything
//! when they exit.

#![expect(clippy::missing_errors_doc, reason = "each error is the one of the program that failed")]

use std::path::Path;

use crate::clients::{clients_folder, copy_files, run_program};

/// Package of the SDK for Python.
pub const PYTHON_SDK: &str = "pyroscope-io==1.4.0";

/// Splits a command into its words.
#[must_use]
pub fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Creates a Python environment with packages in a folder.
pub fn prepare_python(folder: &Path, packages: &[&str]) -> Result<String, String> {
    run_program("python3", &["-m", "venv", "."], folder)?;
    run_program("bin/pip", &[&["install", "--quiet"], packages].concat(), folder)
}

/// Returns the command of a Python program in the environment of the current folder.
#[must_use]
pub fn python_command(client: &str, file: &str, arguments: &[&str]) -> Vec<String> {
    let program = clients_folder().join(client).join(file);
    command(&[&["bin/python", &program.to_string_lossy()], arguments].concat())
}

/// Builds a Go program in a folder as `./busy`.
pub fn prepare_go(client: &str, files: &[&str], folder: &Path) -> Result<String, String> {
    copy_files(client, files, folder)?;
    run_program("go", &["build", "-o", "busy", "."], folder)
}

/// Copies a Node program to a folder and installs its packages.
pub fn prepare_node(client: &str, files: &[&str], folder: &Path) -> Result<String, String> {
    run_program("node", &["--version"], folder)?;
    copy_files(client, files, folder)?;
    run_program("npm", &["install", "--silent", "--no-audit", "--no-fund"], folder)
}

/// Builds the Rust program. `target` keeps compiled crates from run to run.
pub fn prepare_rust(folder: &Path, target: &Path) -> Result<String, String> {
    copy_files("rust", &["Cargo.toml", "Cargo.lock", "src/main.rs"], folder)?;
    let target = target.to_string_lossy();
    run_program("cargo", &["build", "--quiet", "--locked", "--target-dir", &target], folder)
}

/// Returns the command of the Rust program.
#[must_use]
pub fn rust_command(target: &Path, url: &str) -> Vec<String> {
    command(&[&target.join("debug/busy").to_string_lossy(), url])
}

/// Fetches the agent for Java to a folder and compiles its program.
pub fn prepare_java_agent(folder: &Path) -> Result<String, String> {
    copy_files("java-agent", &["pom.xml", "Busy.java"], folder)?;
    run_program("mvn", &["--quiet", "--batch-mode", "dependency:copy-dependencies"], folder)?;
    run_program("javac", &["-cp", "lib/agent.jar", "Busy.java"], folder)
}

/// Returns the command of the program with the agent for Java.
#[must_use]
pub fn java_agent_command(url: &str) -> Vec<String> {
    let server = format!("-Dpyroscope.server.address={url}");
    command(&[
        "java",
        "-javaagent:lib/agent.jar",
        "-Dpyroscope.application.name=java-agent",
        "-Dpyroscope.format=jfr",
        "-Dpyroscope.profiler.alloc=128k",
        "-Dpyroscope.profiler.lock=1ms",
        "-Dpyroscope.upload.interval=2s",
        &server,
        "-classpath",
        ".:lib/agent.jar",
        "Busy",
    ])
}
