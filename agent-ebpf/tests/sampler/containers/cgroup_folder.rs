//! Cgroups of the test: folders of cgroup2, removed on drop.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::RunningProgram;

/// Created cgroup, with the parents that did not exist.
#[derive(Debug)]
pub struct CgroupFolder {
    folder: PathBuf,
    path: String,
    created: Vec<PathBuf>,
}

impl CgroupFolder {
    /// Returns where cgroup2 is mounted.
    pub fn mount_point() -> Option<PathBuf> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        fields
            .into_iter()
            .find(|fields| fields.get(2) == Some(&"cgroup2"))
            .map(|fields| PathBuf::from(fields[1]))
    }

    /// Creates a cgroup.
    pub fn create(base: &Path, path: &str) -> Self {
        let mut folder = base.to_path_buf();
        let mut created = Vec::new();
        for part in path.split('/') {
            folder.push(part);
            if !folder.exists() {
                std::fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
                created.push(folder.clone());
            }
        }
        Self { folder, path: path.to_owned(), created }
    }

    /// Returns the path below the mount point.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Moves a process into the cgroup.
    pub fn move_inside(&self, pid: u32) {
        std::fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Starts a program that is in the cgroup from its first instruction on.
    pub fn start_inside(&self, program: &Path, arguments: &[&str]) -> RunningProgram {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\""]).arg(&self.folder);
        RunningProgram::spawn(command.arg(program).args(arguments))
    }
}

impl Drop for CgroupFolder {
    fn drop(&mut self) {
        // A process that was killed leaves its cgroup a little later.
        let members = std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in members.split_ascii_whitespace() {
            let _ = Command::new("kill").args(["-KILL", pid]).status();
        }
        for folder in self.created.iter().rev() {
            for _ in 0..100 {
                if std::fs::remove_dir(folder).is_ok() || !folder.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}
