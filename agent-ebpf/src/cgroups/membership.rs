//! `/proc/PID/cgroup`.

use super::names::CgroupNames;

/// Lines that are read: more than the kernel has controllers.
const MAX_LINES: usize = 64;
/// Longest path. The kernel writes up to a page.
const MAX_PATH_BYTES: usize = 4096;
/// Controllers of v1 whose path is preferred, best first.
const PREFERRED_CONTROLLERS: [&[u8]; 5] = [b"name=systemd", b"pids", b"memory", b"cpu", b"devices"];
/// Mark of a cgroup that was removed while the process was in it.
const DELETED_SUFFIX: &[u8] = b" (deleted)";

/// Cgroups of one process.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CgroupMembership {
    /// Path in the v2 hierarchy, if the process has one.
    pub unified: Option<String>,
    /// Most specific path: the first one with a container, else the first one below the root, in the order v2,
    /// systemd, controllers. `/` if all are the root. None if there is no line.
    pub path: Option<String>,
}

// === impl CgroupMembership ===

impl CgroupMembership {
    /// Parses the content of the file. Malformed lines are skipped.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut lines: Vec<CgroupLine> =
            split_lines(bytes).take(MAX_LINES).filter_map(CgroupLine::parse).collect();
        let unified = lines.iter().find(|line| line.is_unified).map(|line| line.path.clone());
        // The sort is stable: equal ones keep the order of the file.
        lines.sort_by_key(|line| line.rank);
        Self { unified, path: lines.into_iter().next().map(|line| line.path) }
    }
}

/// One line, with its place in the order of preference.
#[derive(Debug)]
struct CgroupLine {
    path: String,
    is_unified: bool,
    rank: (bool, bool, usize),
}

impl CgroupLine {
    /// Parses `hierarchy:controllers:path`. Controllers of v1 may have a name with colons, paths may too.
    fn parse(line: &[u8]) -> Option<Self> {
        let position = line.windows(2).position(|pair| pair == b":/")?;
        let path = line.get(position.checked_add(1)?..)?;
        let path = path.strip_suffix(DELETED_SUFFIX).unwrap_or(path);
        let mut head = line.get(..position)?.splitn(2, |byte| *byte == b':');
        let hierarchy = head.next()?;
        let controllers = head.next()?;
        let is_unified = hierarchy == b"0" && controllers.is_empty();
        let path = path.get(..path.len().min(MAX_PATH_BYTES))?;
        let path = String::from_utf8_lossy(path).into_owned();
        let is_preferred =
            |wanted: &&[u8]| controllers.split(|byte| *byte == b',').any(|name| name == *wanted);
        let order = match PREFERRED_CONTROLLERS.iter().position(is_preferred) {
            _ if is_unified => 0,
            Some(position) => position + 1,
            None => PREFERRED_CONTROLLERS.len() + 1,
        };
        let has_container = CgroupNames::from_path(&path).container.is_some();
        let is_root = path == "/";
        Some(Self { path, is_unified, rank: (!has_container, is_root, order) })
    }
}

/// Splits at the line breaks that a new line follows. Names of cgroups cannot have line breaks.
fn split_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a9c0d1e4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeef";

    fn select_path(text: &str) -> Option<String> {
        CgroupMembership::parse(text.as_bytes()).path
    }

    #[test]
    fn layouts_give_most_specific_path() {
        let container = format!("/docker/{ID}");
        let scope = format!("/system.slice/docker-{ID}.scope");
        let cases = [
            (
                "0::/user.slice/user-0.slice/session-1.scope\n".to_owned(),
                "/user.slice/user-0.slice/session-1.scope",
            ),
            (format!("0::{scope}\n"), &scope),
            // v1
            (
                format!("12:pids:{container}\n11:cpu,cpuacct:{container}\n1:name=systemd:{container}\n"),
                &container,
            ),
            // hybrid, container in controllers only
            (format!("5:memory:{container}\n1:name=systemd:/system.slice/a.service\n0::/\n"), &container),
            ("9:name=systemd:/\n4:memory:/box/a\n0::/\n".to_owned(), "/box/a"),
            (
                "4:memory:/box\n1:name=systemd:/system.slice/a.service\n0::/\n".to_owned(),
                "/system.slice/a.service",
            ),
            (
                "4:memory:/box\n1:name=systemd:/b\n0::/system.slice/c.service\n".to_owned(),
                "/system.slice/c.service",
            ),
            ("0::/\n".to_owned(), "/"),
            ("0::/../../a.scope\n".to_owned(), "/../../a.scope"),
            ("0::/a.scope (deleted)\n".to_owned(), "/a.scope"),
            ("1:name=a:b:/c:/d\n".to_owned(), "/c:/d"),
        ];
        for (text, expected) in cases {
            assert_eq!(select_path(&text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(select_path(""), None);
        assert_eq!(select_path("x\n:\n::\n0:/\n"), None);
        let hybrid = CgroupMembership::parse(b"4:memory:/box\n0::/a\n");
        assert_eq!(hybrid.unified.as_deref(), Some("/a"));
    }

    #[test]
    fn own_cgroups_are_read() {
        let membership = CgroupMembership::parse(&std::fs::read("/proc/self/cgroup").unwrap());
        assert!(membership.path.is_some_and(|path| path.starts_with('/')));
    }
}
