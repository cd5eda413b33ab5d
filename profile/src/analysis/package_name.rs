//! Packages of functions, by their names and files.

/// Folders whose next part names a package that was installed.
const INSTALL_FOLDERS: [&str; 3] = ["node_modules/", "site-packages/", "dist-packages/"];

/// Returns the package of a function: `github.com/x/y` of Go, `java.util` of Java, `tokio` of Rust, `std` of C++, the
/// installed package or the folder of a file in other languages. Empty if neither name nor file states one.
pub fn package_name<'t>(function: &'t str, file: &'t str) -> &'t str {
    if let Some(package) = installed_package(file) {
        return package;
    }
    let plain = plain_name(function);
    if let Some((first, _)) = plain.split_once("::") {
        return first;
    }
    let path_end = plain.rfind('/').map_or(0, |at| at + 1);
    if path_end > 0 {
        // The path of a Go package ends with the first dot after its last slash. Dots within it are escaped.
        let end = plain[path_end..].find('.').map_or(plain.len(), |at| path_end + at);
        return &plain[..end];
    }
    match class_start(plain) {
        Some(0) => folder_name(file),
        Some(start) => &plain[..start - 1],
        None => plain.split_once('.').map_or_else(|| folder_name(file), |(package, _)| package),
    }
}

/// Returns a name without its arguments, and without what wraps the path of a Rust or C++ type.
fn plain_name(function: &str) -> &str {
    let name = function.trim_start_matches(['<', '&', '*', '(', '[']);
    let name = name.strip_prefix("mut ").or_else(|| name.strip_prefix("dyn ")).unwrap_or(name);
    let name = name.strip_prefix("(anonymous namespace)::").unwrap_or(name);
    let end = name.find(['(', '<', ' ', '{', '[']).unwrap_or(name.len());
    &name[..end]
}

/// Returns where the class begins in the name of a Java method: at the first part with an upper-case letter.
fn class_start(name: &str) -> Option<usize> {
    let mut start = 0;
    for part in name.split('.') {
        let is_last = start + part.len() == name.len();
        if !is_last && part.chars().next().is_some_and(char::is_uppercase) {
            return Some(start);
        }
        start += part.len() + 1;
    }
    None
}

fn installed_package(file: &str) -> Option<&str> {
    let starts = INSTALL_FOLDERS.iter().filter_map(|folder| Some(file.rfind(folder)? + folder.len()));
    let path = &file[starts.max()?..];
    let mut ends = path.match_indices('/').map(|(at, _)| at);
    let first = ends.next()?;
    // Scoped packages of npm have two parts: `@scope/name`.
    let end = if path.starts_with('@') { ends.next().unwrap_or(path.len()) } else { first };
    Some(&path[..end])
}

/// Returns the name of the folder that contains a file.
fn folder_name(file: &str) -> &str {
    let Some((folders, _)) = file.rsplit_once('/') else { return "" };
    folders.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_of_function_follows_its_language() {
        let cases = [
            ("github.com/x/y.(*T).Run", "/src/y/t.go", "github.com/x/y"),
            ("gopkg.in/yaml%2ev3.Parse", "", "gopkg.in/yaml%2ev3"),
            ("runtime.mallocgc", "/usr/go/src/runtime/malloc.go", "runtime"),
            ("main.main.func1", "", "main"),
            ("java.util.HashMap.get", "HashMap.java", "java.util"),
            ("com.shop.Cart$Line.total", "", "com.shop"),
            ("tokio::runtime::park", "", "tokio"),
            ("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "", "alloc"),
            ("std::vector<int>::push_back(int&&)", "", "std"),
            ("Template.render", "/usr/lib/python3/site-packages/jinja2/environment.py", "jinja2"),
            ("render", "/app/node_modules/@scope/view/lib/a.js", "@scope/view"),
            ("handle", "/app/shop/cart.py", "shop"),
            ("Cart.total", "/app/shop/cart.rb", "shop"),
            ("malloc", "", ""),
            ("", "", ""),
        ];
        for (function, file, package) in cases {
            assert_eq!(package_name(function, file), package, "{function} {file}");
        }
    }
}
