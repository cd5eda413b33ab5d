//! Lookup of a part in `multipart/form-data`.
//!
//! The receiver passes forms on unchanged. It reads a part only to decide whether the profile in it has a time.
//! A form that it cannot read has no such part, and the server refuses it.

/// Maximum length of a part's header.
const MAX_PART_HEADER_BYTES: usize = 8 << 10;
/// Maximum number of parts that are searched. SDKs send at most four.
const MAX_SEARCHED_PARTS: usize = 32;

/// Returns the content of the first part with a name.
pub(super) fn find_form_part<'b>(content_type: &str, body: &'b [u8], name: &str) -> Option<&'b [u8]> {
    let delimiter = format!("--{}", parse_boundary(content_type)?);
    let delimiter = delimiter.as_bytes();
    let mut rest = &body[find(body, delimiter)? + delimiter.len()..];
    for _ in 0..MAX_SEARCHED_PARTS {
        let window = &rest[..rest.len().min(MAX_PART_HEADER_BYTES)];
        let header_end = find(window, b"\r\n\r\n")?;
        let part = &rest[header_end + 4..];
        let end = find_part_end(part, delimiter)?;
        if has_name(&rest[..header_end], name) {
            return Some(&part[..end.saturating_sub(2)]);
        }
        rest = &part[end + delimiter.len()..];
        if rest.starts_with(b"--") {
            return None;
        }
    }
    None
}

fn parse_boundary(content_type: &str) -> Option<String> {
    header_parameter(content_type, "boundary").filter(|boundary| !boundary.is_empty())
}

/// Returns a parameter of a header: `; name=value` or `; name="value"`.
fn header_parameter(header: &str, wanted: &str) -> Option<String> {
    let mut rest = header.split_once(';')?.1;
    loop {
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => parse_quoted(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = after.trim_start().trim_start_matches(';');
    }
}

/// Returns the text up to the closing quote, and the rest after it.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// Returns the offset of the next delimiter at the beginning of a line.
fn find_part_end(part: &[u8], delimiter: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + find(&part[from..], delimiter)?;
        let after = &part[at + delimiter.len()..];
        let is_line = at == 0 || part[..at].ends_with(b"\r\n");
        if is_line && (after.starts_with(b"\r\n") || after.starts_with(b"--")) {
            return Some(at);
        }
        from = at + 1;
    }
}

fn has_name(header: &[u8], name: &str) -> bool {
    let header = String::from_utf8_lossy(header);
    header.split("\r\n").filter_map(|line| line.split_once(':')).any(|(header, value)| {
        header.trim().eq_ignore_ascii_case("content-disposition")
            && header_parameter(value, "name").is_some_and(|found| found == name)
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORM: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"labels\"\r\n\r\nx\r\n--bc\r\n--b\r\n\
        content-disposition: form-data; name=profile; filename=\"p\"\r\n\r\n\x01--b\r\n\x02\r\n--b--\r\n";

    #[test]
    fn part_is_found_by_its_name() {
        let form = |name| find_form_part("multipart/form-data; boundary=\"b\"", FORM, name);
        assert_eq!(form("labels"), Some(&b"x\r\n--bc"[..]));
        assert_eq!(form("profile"), Some(&b"\x01--b\r\n\x02"[..]));
        assert_eq!(form("p"), None);
        let quoted = b"--b\r\nContent-Disposition: form-data; filename=\"a;name=\\\"p\"; name=\"profile\"\r\n\r\nx\r\n--b--";
        let form = |name| find_form_part("multipart/form-data; charset=utf-8; Boundary=b", quoted, name);
        assert_eq!((form("profile"), form("p")), (Some(&b"x"[..]), None));
        assert_eq!(find_form_part("multipart/form-data", FORM, "profile"), None);
        assert_eq!(find_form_part("multipart/form-data; boundary=b", b"--b\r\n\r\n", "profile"), None);
    }

    proptest! {
        #[test]
        fn damaged_form_does_not_panic(cut in 0..FORM.len(), at in 0..FORM.len(), byte: u8) {
            let mut form = FORM[..cut].to_vec();
            if let Some(place) = form.get_mut(at) {
                *place = byte;
            }
            let found = find_form_part("multipart/form-data; boundary=b", &form, "profile");
            prop_assert!(found.is_none_or(|part| part.len() < form.len()));
        }
    }
}
