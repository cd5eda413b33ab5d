//! Any bytes as a form: refused, or parts that are slices of the body, in their order.
#![no_main]

use athanor_profile::encoding::multipart::MultipartForm;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first line may be a content type, or the form begins at once.
    let line = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    let own = String::from_utf8_lossy(&bytes[..line]);
    let body = Bytes::copy_from_slice(bytes);
    for content_type in [own.as_ref(), "multipart/form-data; boundary=b"] {
        let Ok(form) = MultipartForm::parse(content_type, &body) else { continue };
        let mut end = body.as_ptr();
        for part in form.parts.iter().filter(|part| !part.content.is_empty()) {
            let range = part.content.as_ptr_range();
            assert!(range.start >= end && range.end <= body.as_ptr_range().end);
            end = range.end;
        }
    }
});
