//! Program of a third party that runs beside the agent.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Running program. It ends at the end of its input. Dropping it kills the process.
pub struct ClientProgram {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    command: String,
}

impl ClientProgram {
    /// Starts a command in a folder, where its error output goes to a file.
    pub fn start(command: &[String], folder: &Path) -> Self {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.join("errors.log")).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, input, output, command: command.join(" ") }
    }

    /// Returns the next line of output, or None after the last one.
    pub fn next_line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.output.read_line(&mut line).unwrap();
        (count > 0).then(|| line.trim_end().to_owned())
    }

    /// Ends the input and waits until the program exits successfully.
    pub fn finish(mut self, folder: &Path) {
        drop(self.input.take());
        while self.next_line().is_some() {}
        let status = self.child.wait().unwrap();
        let errors = std::fs::read_to_string(folder.join("errors.log")).unwrap_or_default();
        assert!(status.success(), "{}: {status}\n{errors}", self.command);
    }
}

impl Drop for ClientProgram {
    fn drop(&mut self) {
        // If the process has already exited, the signal has no target.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
