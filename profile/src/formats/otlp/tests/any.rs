//! Whatever comes.

use proptest::prelude::*;

use super::*;
use crate::data_model::dropped_counts::DropReason;

/// What is made is never more than may be, and is pprof.
fn sound(export: &OtlpExport) {
    let mut total = 0;
    for made in export.profiles.iter().flatten().flatten() {
        let OtlpProfileContent::Pprof(bytes) = &made.content else { continue };
        assert!(bytes.len() <= BOUNDS.profile + 1000);
        total += bytes.len();
        match pprof::decode(bytes, &DecodeLimits::default()) {
            Ok((_, dropped)) => assert_eq!(dropped.get(DropReason::DanglingSample), 0),
            Err(error) => assert!(matches!(error, pprof::DecodeError::NotUtf8 { .. }), "{error}"),
        }
    }
    assert!(total <= BOUNDS.total + BOUNDS.profiles * 1000);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(export) = read(&bytes, &BOUNDS) {
            sound(&export);
        }
    }

    #[test]
    fn damaged_requests_are_read_or_refused(seed: u64, places in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8)) {
        let mut bytes = encode(&arbitrary_profile(seed), &[("service.name", "shop")]);
        for (place, byte) in places {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        if let Ok(export) = read(&bytes, &BOUNDS) {
            sound(&export);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in r#"(\{|\}|\[|\]|,|:|"(resourceProfiles|scopeProfiles|profiles|samples|values|dictionary|stringTable|x)"|[0-9]{1,3}|null| ){0,40}"#) {
        if let Ok(bytes) = from_json(text.as_bytes(), 1 << 16) {
            prop_assert!(bytes.len() <= (1 << 16) + 16);
            let _ = read(&bytes, &BOUNDS);
        }
    }
}
