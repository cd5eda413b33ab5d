//! Normalization of names that the JVM and its libraries generate differently in each process. The parts that
//! differ between processes are removed. Otherwise the set of names would grow without bound, and equal
//! stacks would have different names.
//!
//! ```text
//!  Main$$Lambda$4/0x800c01220, Main$$Lambda.0x7f00a0  ─► Main$$Lambda_
//!  java/lang/invoke/LambdaForm$MH/0x800c8c000         ─► java/lang/invoke/LambdaForm$MH_
//!  jdk/internal/reflect/GeneratedMethodAccessor31     ─► jdk/internal/reflect/GeneratedMethodAccessor_
//!  /tmp/libzstd-jni-1.5.1-1693131.so (deleted)        ─► libzstd-jni-_.so
//! ```

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

const LAMBDA_MARKER: &str = "$$Lambda";
const ACCESSOR_CLASSES: [&str; 3] = [
    "reflect/GeneratedMethodAccessor",
    "reflect/GeneratedConstructorAccessor",
    "reflect/GeneratedSerializationConstructorAccessor",
];

/// Patterns of libraries that unpack themselves to a file with a unique name, and their stable names.
static UNPACKED_LIBRARIES: LazyLock<[(Regex, &str); 4]> = LazyLock::new(|| {
    let rule = |pattern: &str, name| (Regex::new(pattern).expect("patterns are constants"), name);
    [
        rule(r"^(?:\.?/tmp/)?libzstd-jni-\d+\.\d+\.\d+-\d+\.so(?: \(deleted\))?$", "libzstd-jni-_.so"),
        rule(
            r"^(?:\.?/tmp/)?(?:lib)?amazonCorrettoCryptoProvider(?:NativeLibraries\.)?[0-9a-f]{16}(?:/lib\w+)?\.so(?: \(deleted\))?$",
            "libamazonCorrettoCryptoProvider_.so",
        ),
        rule(
            r"^(?:\.?/tmp/)?libasyncProfiler-[a-z0-9-]+-[0-9a-f]{38}\.so(?: \(deleted\))?$",
            "libasyncProfiler-_.so",
        ),
        rule(
            r"^(?:\.?/tmp/)?snappy-\d+\.\d+\.[\d.]+-[0-9a-f-]{36}-libsnappyjava\.so(?: \(deleted\))?$",
            "snappy-_-libsnappyjava.so",
        ),
    ]
});

/// Returns the name of a class, a library or a function without the parts that differ between processes.
pub(super) fn stable_name(name: &str) -> Cow<'_, str> {
    let bytes = name.as_bytes();
    let ends_in_digit = bytes.last().is_some_and(u8::is_ascii_hexdigit);
    if ends_in_digit {
        let class = strip_hidden_class(name).or_else(|| strip_lambda(name)).or_else(|| strip_accessor(name));
        return class.map_or(Cow::Borrowed(name), |class| Cow::Owned(format!("{class}_")));
    }
    if name.ends_with(".so") || name.ends_with(" (deleted)") {
        let rule = UNPACKED_LIBRARIES.iter().find(|(pattern, _)| pattern.is_match(name));
        return Cow::Borrowed(rule.map_or(name, |(_, lasting)| lasting));
    }
    Cow::Borrowed(name)
}

/// Strips the address behind the name of a hidden class. Lambdas also have a number before it.
fn strip_hidden_class(name: &str) -> Option<&str> {
    let class = name.trim_end_matches(|character: char| character.is_ascii_hexdigit()).strip_suffix("0x")?;
    let class = class.strip_suffix(['/', '.', '+'])?;
    (!class.is_empty()).then(|| strip_lambda(class).unwrap_or(class))
}

/// Strips the two numbers behind the name of a lambda of older JVMs.
fn strip_lambda(name: &str) -> Option<&str> {
    let is_number = |character: char| character.is_ascii_digit() || matches!(character, '$' | '/' | '.');
    let class = name.trim_end_matches(is_number);
    class.ends_with(LAMBDA_MARKER).then_some(class)
}

fn strip_accessor(name: &str) -> Option<&str> {
    let class = name.trim_end_matches(|character: char| character.is_ascii_digit());
    (class.len() < name.len() && ACCESSOR_CLASSES.iter().any(|accessor| class.ends_with(accessor)))
        .then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_process_to_process_is_left_out() {
        for (name, expected) in [
            ("a/B$$Lambda$4/1283928880", "a/B$$Lambda_"),
            ("a/B$$Lambda$8/0x0000000800c01220", "a/B$$Lambda_"),
            ("a/B$$Lambda$669.0x0000000800fd7318", "a/B$$Lambda_"),
            ("Fib$$Lambda.0x00007ffa600c4da0", "Fib$$Lambda_"),
            ("Fib$$Lambda/0x00007ffa600c4da0", "Fib$$Lambda_"),
            ("java/lang/invoke/LambdaForm$MH/0x0000000800c8c000", "java/lang/invoke/LambdaForm$MH_"),
            (
                "jdk/internal/reflect/GeneratedMethodAccessor31",
                "jdk/internal/reflect/GeneratedMethodAccessor_",
            ),
            ("sun/reflect/GeneratedConstructorAccessor7", "sun/reflect/GeneratedConstructorAccessor_"),
            ("/tmp/libzstd-jni-1.5.1-16931311898282279136.so (deleted)", "libzstd-jni-_.so"),
            (
                "./tmp/libamazonCorrettoCryptoProvider109b39cf33c563eb.so",
                "libamazonCorrettoCryptoProvider_.so",
            ),
            (
                "amazonCorrettoCryptoProviderNativeLibraries.7382c2f79097f415/libcrypto.so",
                "libamazonCorrettoCryptoProvider_.so",
            ),
            (
                "libasyncProfiler-linux-musl-x64-17b9a1d8156277a98ccc871afa9a8f69215f92.so",
                "libasyncProfiler-_.so",
            ),
            (
                "/tmp/snappy-1.1.8-d1f9bd24-4cc8-4571-b71c-1698b83f1af1-libsnappyjava.so",
                "snappy-_-libsnappyjava.so",
            ),
        ] {
            assert_eq!(stable_name(name), expected, "{name}");
        }
    }

    #[test]
    fn other_names_stay() {
        for name in [
            "",
            "java/util/concurrent/Executors$RunnableAdapter",
            "Main$1",
            "Main$$Lambda$helper1",
            "GeneratedMethodAccessor",
            "reflect/GeneratedMethodAccessor",
            "a/Hash0x12",
            "/0x12",
            "0x12",
            "libjvm.so",
            "libc-2.31.so",
            "ü0x1",
            "$Proxy12",
        ] {
            assert_eq!(stable_name(name), name);
        }
    }
}
