//! Requests in JSON.

use super::*;

/// The request in `json` reads as one in protobuf does.
#[test]
fn json_is_the_same_request() {
    let json = r#"{
        "resource_profiles": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}], "unknown": [1, {}]},
            "scopeProfiles": [{"profiles": [{
                "sampleType": {"typeStrindex": 3, "unit_strindex": 4},
                "samples": [
                    {"stackIndex": 1, "attributeIndices": [1], "linkIndex": 1, "values": ["3"], "timestampsUnixNano": ["5001"]},
                    {"stackIndex": 2, "values": [2, 0e0], "timestampsUnixNano": [5001, 5002]}
                ],
                "timeUnixNano": "5000", "durationNano": 100, "period": 1e3,
                "periodType": {"typeStrindex": 1, "unitStrindex": 2},
                "profileId": "07070707070707070707070707070707", "originalPayload": null
            }]}]
        }],
        "dictionary": DICTIONARY
    }"#;
    let dictionary = serde_json::json!({
        "stringTable": std::iter::once("").chain(TEXTS).collect::<Vec<_>>(),
        "functionTable": [{}, {"nameStrindex": 5, "systemNameStrindex": 5, "filenameStrindex": 7},
            {"nameStrindex": 6, "systemNameStrindex": 6, "filenameStrindex": 7}],
        "locationTable": [{}, {"lines": [{"functionIndex": 1, "line": "10"}]}, {"lines": [{"functionIndex": 2, "line": 20}]}],
        "mappingTable": [{}],
        "linkTable": [{}, {"traceId": "aa".repeat(16), "spanId": "u7u7u7u7u7s="}],
        "attributeTable": [{}, {"keyStrindex": 8, "value": {"stringValue": "t1"}}],
        "stackTable": [{}, {"locationIndices": [2, 1]}, {"location_indices": [1]}],
    });
    let json = json.replace("DICTIONARY", &dictionary.to_string());
    let bytes = from_json(json.as_bytes(), 1 << 20).unwrap();
    let first = msg().n(1, 1).p(2, &[1]).n(3, 1).p(4, &[3]).times(5, &[5001]);
    let second = msg().n(1, 2).p(4, &[2, 0]).times(5, &[5001, 5002]);
    let expected = read_one(&request(&[cpu().m(2, first).m(2, second).b(7, [7; 16])])).unwrap();
    let made = read_one(&bytes).unwrap();
    assert_eq!((&made[0].labels, &made[0].id), (&expected[0].labels, &expected[0].id));
    assert_eq!(samples_of(&decoded(&made[0])), samples_of(&decoded(&expected[0])));
    assert!(matches!(from_json(json.as_bytes(), 100), Err(OtlpJsonError::TooLarge { limit: 100 })));
}

#[test]
fn json_that_is_none_says_where() {
    for (json, why) in [
        ("{", "EOF while parsing an object"),
        ("[]", "invalid type: sequence, expected an object"),
        ("\"x\"", "invalid type: a text, expected an object"),
        ("{} x", "trailing characters"),
        (r#"{"resourceProfiles": {}}"#, "invalid type: map, expected a list in resourceProfiles"),
        (r#"{"dictionary": {"stringTable": [3]}}"#, "3 cannot be the value of stringTable"),
        (
            r#"{"dictionary": {"stackTable": [{"locationIndices": ["x"]}]}}"#,
            "locationIndices is not a whole number",
        ),
        (r#"{"dictionary": {"linkTable": [{"traceId": "?"}]}}"#, "traceId is not an id"),
        (
            r#"{"dictionary": {"stackTable": [{"locationIndices": [1, null]}]}}"#,
            "invalid type: null, expected a whole number in locationIndices",
        ),
        (
            r#"{"dictionary": {"functionTable": [null, {}]}}"#,
            "invalid type: null, expected an object in functionTable",
        ),
    ] {
        let refused = from_json(json.as_bytes(), 1 << 20).unwrap_err().to_string();
        let expected = format!("the request cannot be read: {why} at line 1 column ");
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

#[test]
fn names_tell_what_is_what() {
    let json = |sample: &str| {
        let json = format!(
            r#"{{"resourceProfiles": [{{"scopeProfiles": [{{"profiles": [{{
                "sampleType": {{"typeStrindex": 1}}, "periodType": {{"typeStrindex": 1}}, {sample}
            }}]}}]}}], "dictionary": {{
                "stringTable": ["", "wall", "main"], "functionTable": [{{}}, {{"nameStrindex": 2}}],
                "locationTable": [{{}}, {{"line": [{{"functionIndex": 1, "line": 7}}]}}],
                "stackTable": [{{}}, {{"locationIndices": [1]}}], "attributeTable": [{{}}]
            }}}}"#
        );
        let bytes = from_json(json.as_bytes(), 1 << 20).unwrap();
        read_converted_json(&bytes, &BOUNDS).unwrap().profiles.remove(0)
    };
    // In protobuf these would pass for values of the layout before.
    let refused = json(r#""samples": [{"stackIndex": 1, "attributeIndices": [0]}]"#);
    assert_eq!(refused, Err(OtlpError::Values { sample: 1, values: 0, times: 0 }));
    let of_1_8 = json(r#""sample": [{"stackIndex": 1, "values": [5]}]"#).unwrap();
    assert_eq!(samples_of(&decoded(&of_1_8[0])), of(&[("main:7", 5)]));
}
