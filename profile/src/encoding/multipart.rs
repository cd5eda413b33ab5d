//! Parser of `multipart/form-data`. Parts are slices of the body, not copies.
//!
//! The crate `multer` does not replace it. Its size limits can be set per field, but it limits no number of
//! parts, reports no offset of an error, and copies a body that lies in memory already.

use bytes::Bytes;
use memchr::memmem;

/// Maximum number of parts in a form. SDKs send at most four.
const MAX_FORM_PARTS: usize = 32;
/// Maximum length of a part's header.
const MAX_PART_HEADER_BYTES: usize = 8 << 10;
/// Maximum length of the boundary, from the standard.
const MAX_BOUNDARY_BYTES: usize = 70;

/// Form with its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultipartForm {
    /// Parts in the order sent.
    pub parts: Vec<FormPart>,
}

/// Part of a form: field name and content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormPart {
    /// Name of the form field.
    pub name: String,
    /// Content of the part, a slice of the body.
    pub content: Bytes,
}

/// Reason that a body is not a form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// The content type has no boundary.
    #[error("content type {0:?} has no boundary; send multipart/form-data; boundary=…")]
    NoBoundary(String),
    /// The boundary is missing where a part must begin or end.
    #[error("form is truncated: no boundary after byte {at}")]
    CutOff {
        /// Offset from which it was searched.
        at: usize,
    },
    /// The part has no header, or one that is too long.
    #[error("part of a form at byte {at} has no header of at most {MAX_PART_HEADER_BYTES} bytes")]
    NoHead {
        /// Offset at which the part begins.
        at: usize,
    },
    /// The form has too many parts.
    #[error(
        "form has at least {} parts, the limit is {MAX_FORM_PARTS}, which no setting changes; send only profile and \
         sample_type_config, or jfr and labels", MAX_FORM_PARTS + 1
    )]
    TooMany,
}

impl MultipartForm {
    /// Splits a body into its parts.
    pub fn parse(content_type: &str, body: &Bytes) -> Result<Self, FormError> {
        let boundary = parse_boundary(content_type)
            .ok_or_else(|| FormError::NoBoundary(content_type.chars().take(200).collect()))?;
        let opening = format!("--{boundary}");
        let closing = memmem::Finder::new(opening.as_bytes());
        let mut at = closing.find(body).ok_or(FormError::CutOff { at: 0 })? + opening.len();
        let mut form = MultipartForm::default();
        loop {
            if body[at..].starts_with(b"--") {
                return Ok(form);
            }
            if form.parts.len() == MAX_FORM_PARTS {
                return Err(FormError::TooMany);
            }
            let (name, start) = parse_part_header(body, at)?;
            let end = find_part_end(body, start, &closing).ok_or(FormError::CutOff { at: start })?;
            form.parts.push(FormPart { name, content: body.slice(start..end.saturating_sub(2).max(start)) });
            at = end + opening.len();
        }
    }

    /// Returns the content of the first part with that name.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.parts.iter().find(|part| part.name == name).map(|part| &part.content)
    }
}

/// Returns the offset of the next boundary at the beginning of a line, after CR LF.
fn find_part_end(body: &[u8], start: usize, opening: &memmem::Finder<'_>) -> Option<usize> {
    let mut from = start;
    loop {
        let at = from + opening.find(&body[from..])?;
        let line = at == start || body[..at].ends_with(b"\r\n") && at >= start + 2;
        let after = &body[at + opening.needle().len()..];
        if line && (after.starts_with(b"\r\n") || after.starts_with(b"--")) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Returns the field's name from a part's header, and the offset at which the content begins.
fn parse_part_header(body: &[u8], at: usize) -> Result<(String, usize), FormError> {
    let window = &body[at..body.len().min(at + MAX_PART_HEADER_BYTES)];
    let end = memmem::find(window, b"\r\n\r\n").ok_or(FormError::NoHead { at })?;
    let text = String::from_utf8_lossy(&window[..end]);
    let mut name = String::new();
    for line in text.split("\r\n") {
        let Some((header, value)) = line.split_once(':') else { continue };
        if header.trim().eq_ignore_ascii_case("content-disposition") {
            name = header_parameter(value, "name").unwrap_or_default();
        }
    }
    Ok((name, at + end + 4))
}

fn parse_boundary(content_type: &str) -> Option<String> {
    let boundary = header_parameter(content_type, "boundary")?;
    (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len()).then_some(boundary)
}

/// Returns a parameter of a header: `; name=value` or `; name="value"`.
fn header_parameter(header: &str, wanted: &str) -> Option<String> {
    let mut rest = header.split_once(';')?.1;
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        let (value, after) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => parse_quoted(quoted)?,
            None => {
                let (value, after) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), after)
            }
        };
        if name.eq_ignore_ascii_case(wanted) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPE: &str = "multipart/form-data; charset=utf-8; boundary=\"b-1\"";

    fn written(parts: &[(&str, &[u8])]) -> Bytes {
        let mut body = Vec::new();
        for (name, content) in parts {
            body.extend_from_slice(b"--b-1\r\nContent-Type: application/octet-stream\r\n");
            body.extend_from_slice(
                format!("content-disposition: form-data; filename=\"a;name=x\"; name=\"{name}\"\r\n\r\n")
                    .as_bytes(),
            );
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--b-1--\r\n");
        body.into()
    }

    #[test]
    fn parts_are_slices_of_the_body() {
        let body = written(&[("profile", b"\r\n--b-2\r\nx--b-1"), ("empty", b""), ("profile", b"second")]);
        let form = MultipartForm::parse(TYPE, &body).unwrap();
        assert_eq!(form.parts.len(), 3);
        assert_eq!(form.get("profile").unwrap().as_ref(), b"\r\n--b-2\r\nx--b-1");
        assert_eq!(form.get("empty").unwrap().as_ref(), b"");
        assert_eq!(form.get("other"), None);
        let range = body.as_ptr_range();
        assert!(range.contains(&form.parts[0].content.as_ptr()));
        assert_eq!(
            MultipartForm::parse(TYPE, &Bytes::from_static(b"--b-1--")).unwrap(),
            MultipartForm::default()
        );
    }

    #[test]
    fn what_is_no_form_is_refused() {
        let parse = |content_type: &str, body: &'static [u8]| {
            MultipartForm::parse(content_type, &Bytes::from_static(body)).unwrap_err().to_string()
        };
        for (content_type, body, expected) in [
            ("multipart/form-data", &b""[..], "content type \"multipart/form-data\" has no boundary"),
            ("multipart/form-data; boundary=", b"", "content type \"multipart/form-data; boundary=\""),
            ("multipart/form-data; boundary=\"b", b"", "content type"),
            (TYPE, b"", "form is truncated: no boundary after byte 0"),
            (TYPE, b"x", "form is truncated: no boundary after byte 0"),
            (TYPE, b"--b-1\r\n", "part of a form at byte 5 has no header"),
            (TYPE, b"--b-1\r\na: b\r\n\r\nx", "form is truncated: no boundary after byte 15"),
        ] {
            let error = parse(content_type, body);
            assert!(error.starts_with(expected), "{error}");
        }
        assert_eq!(MultipartForm::parse(TYPE, &written(&[("a", &b""[..]); 33])), Err(FormError::TooMany));
    }

    proptest! {
        #[test]
        fn what_was_written_reads_back(parts in prop::collection::vec(("[a-z]{0,5}", "[-b1\r\n]{0,20}"), 0..5)) {
            let ends_a_part = |content: &String| format!("\r\n{content}\r\n").contains("\r\n--b-1\r\n");
            prop_assume!(!parts.iter().any(|(_, content)| ends_a_part(content) || content.contains("--b-1--")));
            let raw: Vec<(&str, &[u8])> = parts.iter().map(|(n, c)| (n.as_str(), c.as_bytes())).collect();
            let form = MultipartForm::parse(TYPE, &written(&raw)).unwrap();
            let read: Vec<(&str, &[u8])> = form.parts.iter().map(|p| (p.name.as_str(), &p.content[..])).collect();
            prop_assert_eq!(read, raw);
        }

        #[test]
        fn any_bytes_are_read_or_refused(body in "(--b-1|--|\r\n|:|name=\"|;|x){0,20}") {
            let _ = MultipartForm::parse(TYPE, &Bytes::from(body));
        }
    }
}
