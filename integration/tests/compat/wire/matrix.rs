//! Each call in each way to write it, spelled as clients spell it, and with everything that may be wrong with a call.

use std::collections::BTreeSet;
use std::path::Path;

use athanor_integration::bodies::gzip;
use serde_json::{Value, json};

use crate::wire::calls::{self, Call};
use crate::wire::data::{Aviary, TENANT};
use crate::wire::speech::{Grpc, Reply, WAYS, Way, ask, framed, gunzip, http_of, of_connect, post, send};

/// Gathers what is wrong, so that one run tells all.
#[derive(Default)]
pub struct Wrong(Vec<String>);

impl Wrong {
    pub fn unless(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        let quiet = std::thread::panicking();
        assert!(quiet || self.0.is_empty(), "{} are wrong:\n{}", self.0.len(), self.0.join("\n"));
    }
}

/// The good answer of a call, by which others are measured.
fn model(aviary: &Aviary, call: &Call) -> Reply {
    ask(&aviary.server, call, Way::ConnectJson, &call.good)
}

/// Whether an answer is the good one, in the way that it was asked for.
fn is_good(call: &Call, way: Way, model: &Reply, reply: &Reply) -> bool {
    let is_connect = matches!(way, Way::ConnectJson | Way::ConnectProto);
    let http = if is_connect { http_of(call.code) } else { 200 };
    let is_error_of_connect = is_connect && call.code != "ok";
    let content_type = if is_error_of_connect { "application/json" } else { way.content_type() };
    let body = reply.body == model.body || (!call.is_steady && reply.body.pointer(call.shows).is_some());
    reply.http == http && reply.code == call.code && reply.content_type == content_type && body
}

#[test]
fn each_call_is_answered_in_each_way() {
    let aviary = Aviary::new(false);
    let mut wrong = Wrong::default();
    for call in calls::all(&aviary) {
        let model = model(&aviary, &call);
        let shown = call.shows.is_empty() || model.body.pointer(call.shows).is_some();
        wrong.unless(shown, || format!("{}: nothing at {} in {model:?}", call.path, call.shows));
        for way in WAYS {
            let reply = ask(&aviary.server, &call, way, &call.good);
            wrong.unless(is_good(&call, way, &model, &reply), || {
                format!("{} {way:?}: {reply:?}, not {model:?}", call.path)
            });
        }
    }
}

#[test]
fn each_call_takes_what_clients_write() {
    let aviary = Aviary::new(false);
    let mut wrong = Wrong::default();
    for call in calls::all(&aviary) {
        let model = model(&aviary, &call);
        let mut unknown = call.good.clone();
        unknown["ofTomorrow"] = json!({ "a": [1, null, { "b": "c" }] });
        for (what, question) in [
            ("camel case", respelled(&call.good, &|name| camel(name), &Value::clone)),
            ("numbers as texts", respelled(&call.good, &str::to_owned, &in_quotes)),
            ("camel case and texts", respelled(&call.good, &|name| camel(name), &in_quotes)),
            ("an unknown field", unknown),
        ] {
            let json = question.to_string().into_bytes();
            for way in [Way::ConnectJson, Way::GrpcJson, Way::GrpcWebJson] {
                let reply = send(&aviary.server, &call, way, &[], json.clone());
                wrong.unless(is_good(&call, way, &model, &reply), || {
                    format!("{} {way:?} with {what}: {reply:?}, not {model:?}", call.path)
                });
            }
        }
        // Fields 900 and 901: a text and a number.
        let mut message = (call.question)(&call.good);
        message.extend_from_slice(b"\xa2\x38\x03new\xa8\x38\x2a");
        for way in [Way::ConnectProto, Way::Grpc, Way::GrpcWeb] {
            let reply = send(&aviary.server, &call, way, &[], message.clone());
            wrong.unless(is_good(&call, way, &model, &reply), || {
                format!("{} {way:?} with unknown fields: {reply:?}", call.path)
            });
        }
    }
}

#[test]
fn each_call_is_compressed_both_ways() {
    let aviary = Aviary::new(false);
    let mut wrong = Wrong::default();
    for call in calls::all(&aviary) {
        let model = model(&aviary, &call);
        for way in [Way::ConnectJson, Way::ConnectProto] {
            let message = gzip(&way.bytes(&call, &call.good));
            let headers = [
                ("content-type", way.content_type()),
                ("content-encoding", "gzip"),
                ("accept-encoding", "gzip, deflate"),
            ];
            let mut answer = post(&aviary.server, &call, &headers, &message);
            // Errors stay as they are.
            let encoding = if call.code == "ok" { "gzip" } else { "" };
            let told = (answer.header("content-encoding"), answer.header("accept-encoding"));
            wrong.unless(told == (encoding, "gzip"), || format!("{} {way:?}: {told:?}", call.path));
            if encoding == "gzip" {
                answer.body = gunzip(&answer.body);
            }
            let reply = of_connect(&call, way, &answer);
            wrong.unless(is_good(&call, way, &model, &reply), || {
                format!("{} {way:?} in gzip: {reply:?}", call.path)
            });
        }
        let headers = [("content-type", "application/grpc"), ("grpc-encoding", "gzip")];
        let message = framed(1, &gzip(&(call.question)(&call.good)));
        let (_, body, trailers) = aviary.server.runtime.block_on(async {
            Grpc::connect(&aviary.server).await.post(&format!("/{}", call.path), &headers, message).await
        });
        let is_answered = call.code != "ok" || (trailers["grpc-status"] == "0" && body.len() >= 5);
        wrong.unless(is_answered, || format!("{} over gRPC in gzip: {trailers:?}", call.path));
    }
}

#[test]
fn each_call_refuses_what_it_cannot_read() {
    let aviary = Aviary::new(false);
    let mut wrong = Wrong::default();
    for call in calls::all(&aviary) {
        for (what, way, message, code) in [
            ("no bytes", Way::ConnectJson, &b""[..], "invalid_argument"),
            ("an empty object", Way::ConnectJson, b"{}", call.empty),
            ("no fields", Way::ConnectProto, b"", call.empty),
            ("no fields", Way::Grpc, b"", call.empty),
            ("no fields", Way::GrpcWeb, b"", call.empty),
            ("bad JSON", Way::ConnectJson, b"{not json", "invalid_argument"),
            ("bad JSON", Way::GrpcJson, b"{not json", "invalid_argument"),
            ("two objects", Way::ConnectJson, b"{}{}", "invalid_argument"),
            ("a list", Way::ConnectJson, b"[]", "invalid_argument"),
            ("bad protobuf", Way::ConnectProto, b"\xff\xff\xff", "invalid_argument"),
            ("bad protobuf", Way::Grpc, b"\x0a\x7fx", "invalid_argument"),
            ("bad protobuf", Way::GrpcWeb, b"\x0a\x7fx", "invalid_argument"),
        ] {
            let reply = send(&aviary.server, &call, way, &[], message.to_vec());
            let is_connect = matches!(way, Way::ConnectJson | Way::ConnectProto);
            let http = if is_connect { http_of(code) } else { 200 };
            let is_told = code == "ok" || reply.body.as_str().is_some_and(|said| !said.is_empty());
            wrong.unless(reply.http == http && reply.code == code && is_told, || {
                format!("{} {way:?} with {what}: {reply:?}, not {code}", call.path)
            });
        }
    }
}

#[test]
fn each_call_names_what_it_takes() {
    const TYPES: [&str; 6] = [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/json",
        "application/proto",
    ];
    let aviary = Aviary::new(false);
    let mut wrong = Wrong::default();
    for call in calls::all(&aviary) {
        let path = format!("/{}", call.path);
        for method in ["GET", "PUT", "DELETE", "PATCH"] {
            let answer = athanor_integration::server::send_request(
                aviary.server.address,
                &format!("{method} {path}"),
                &[("content-type", "application/json")],
                b"{}",
            );
            let told = (answer.status, answer.header("allow"));
            wrong.unless(told == (405, "POST"), || format!("{method} {path}: {told:?}"));
        }
        // A call has one answer, so Connect's streams are none of its ways.
        for odd in [
            "text/plain",
            "application/x-protobuf",
            "application/connect+json",
            "application/connect+proto",
            "application/grpc-web-text",
            "",
        ] {
            let headers = [("content-type", odd)];
            let headers = if odd.is_empty() { &headers[..0] } else { &headers[..] };
            let answer = post(&aviary.server, &call, headers, b"{}");
            let accepted: Vec<&str> = answer.header("accept-post").split(", ").collect();
            let names_all = TYPES.iter().all(|name| accepted.contains(name));
            wrong.unless(answer.status == 415 && names_all, || {
                format!("{path} with {odd:?}: {} {accepted:?}", answer.status)
            });
        }
        let nowhere =
            aviary.server.post(&format!("{path}Nowhere"), &[("content-type", "application/json")], b"{}");
        wrong.unless(nowhere.status == 404, || format!("{path}Nowhere: {}", nowhere.status));
    }
}

#[test]
fn each_call_reads_the_headers_of_its_protocol() {
    let aviary = Aviary::new(false);
    let mut wrong = Wrong::default();
    for call in calls::all(&aviary) {
        for (header, value, code) in [
            ("connect-protocol-version", "1", call.code),
            ("connect-protocol-version", "2", "invalid_argument"),
            ("connect-timeout-ms", "60000", call.code),
            ("connect-timeout-ms", "soon", "invalid_argument"),
            ("content-encoding", "identity", call.code),
            ("content-encoding", "br", "unimplemented"),
            ("content-encoding", "gzip", "invalid_argument"),
        ] {
            let message = Way::ConnectJson.bytes(&call, &call.good);
            let headers = [("content-type", "application/json"), (header, value)];
            let answer = post(&aviary.server, &call, &headers, &message);
            let reply = of_connect(&call, Way::ConnectJson, &answer);
            let is_right = (reply.http, reply.code.as_str()) == (http_of(code), code)
                && answer.header("accept-encoding") == "gzip";
            wrong.unless(is_right, || format!("{} with {header}: {value}: {reply:?}, not {code}", call.path));
        }
        let headers = [("grpc-timeout", "1x")];
        let reply = send(&aviary.server, &call, Way::Grpc, &headers, (call.question)(&call.good));
        wrong.unless(reply.code == "invalid_argument", || format!("{}: {reply:?}", call.path));
    }
}

#[test]
fn each_call_is_of_a_tenant() {
    let aviary = Aviary::new(true);
    let mut wrong = Wrong::default();
    for call in calls::all(&aviary) {
        let of_tenant = [("x-scope-orgid", TENANT)];
        let message = Way::ConnectJson.bytes(&call, &call.good);
        let good = send(&aviary.server, &call, Way::ConnectJson, &of_tenant, message);
        let shown = call.shows.is_empty() || good.body.pointer(call.shows).is_some();
        wrong.unless(good.code == call.code && shown, || format!("{} of the tenant: {good:?}", call.path));
        for (what, headers) in [
            ("no tenant", &[][..]),
            ("an empty one", &[("x-scope-orgid", "")]),
            ("one that is no name", &[("x-scope-orgid", "a/b")]),
            ("a path", &[("x-scope-orgid", "..")]),
        ] {
            for way in [Way::ConnectJson, Way::ConnectProto, Way::Grpc, Way::GrpcWeb] {
                let reply = send(&aviary.server, &call, way, headers, way.bytes(&call, &call.good));
                let code = if call.is_open { "ok" } else { "unauthenticated" };
                let is_connect = matches!(way, Way::ConnectJson | Way::ConnectProto);
                let http = if is_connect { http_of(code) } else { 200 };
                let mut is_right = (reply.http, reply.code.as_str()) == (http, code);
                if what == "no tenant" && !call.is_open {
                    is_right &= reply.body.as_str().is_some_and(|said| said.starts_with("no org id"));
                }
                wrong.unless(is_right, || format!("{} {way:?} of {what}: {reply:?}", call.path));
            }
        }
        // Another tenant finds nothing of the profile.
        let other = [("x-scope-orgid", "cats")];
        let message = Way::ConnectJson.bytes(&call, &call.good);
        let reply = send(&aviary.server, &call, Way::ConnectJson, &other, message);
        let is_read = reads(&call);
        wrong.unless(!is_read || !reply.body.to_string().contains("func"), || {
            format!("{} shows another tenant {reply:?}", call.path)
        });
    }
}

#[test]
fn readers_may_be_of_several_tenants_and_writers_of_one() {
    let aviary = Aviary::new(true);
    let mut wrong = Wrong::default();
    for call in calls::all(&aviary) {
        let headers = [("x-scope-orgid", "cats|birds")];
        let message = Way::ConnectJson.bytes(&call, &call.good);
        let reply = send(&aviary.server, &call, Way::ConnectJson, &headers, message);
        let is_read = reads(&call);
        let code = if is_read || call.is_open { call.code } else { "unauthenticated" };
        let shown = !is_read || reply.body.pointer(call.shows).is_some();
        wrong.unless(reply.code == code && shown, || format!("{} of two: {reply:?}", call.path));
    }
}

#[test]
fn no_call_of_a_contract_is_forgotten() {
    let aviary = Aviary::new(false);
    let tried: BTreeSet<String> = calls::all(&aviary).iter().map(|call| call.path.to_owned()).collect();
    let mut promised = BTreeSet::new();
    contracts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/protos"), &mut promised);
    // It has many answers, and tests of its own.
    promised.remove("grpc.health.v1.Health/Watch");
    // It has many messages, likewise.
    promised.remove("parca.debuginfo.v1alpha1.DebuginfoService/Upload");
    // Its answer is a stream.
    promised.remove("athanor.v1.ExploreService/Samples");
    assert_eq!(tried, promised);
}

/// The methods that contracts for clients promise.
fn contracts(folder: &Path, methods: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // What nodes say to each other is on another port.
            if !path.ends_with("internal") {
                contracts(&path, methods);
            }
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let (mut package, mut service) = ("", "");
        for line in text.lines() {
            let mut words =
                line.split(|c: char| c.is_whitespace() || "(;{".contains(c)).filter(|word| !word.is_empty());
            match (words.next(), words.next()) {
                (Some("package"), Some(name)) => package = name,
                (Some("service"), Some(name)) => service = name,
                (Some("rpc"), Some(name)) => {
                    methods.insert(format!("{package}.{service}/{name}"));
                }
                _ => {}
            }
        }
    }
}

/// Whether a call reads profiles.
fn reads(call: &Call) -> bool {
    ["querier.v1.QuerierService", "athanor.v1.ExploreService"].contains(&call.service())
}

/// A question with other names, and other spellings of its numbers.
fn respelled(question: &Value, name: &impl Fn(&str) -> String, number: &impl Fn(&Value) -> Value) -> Value {
    match question {
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (name(key), respelled(value, name, number))).collect()
        }
        Value::Array(items) => items.iter().map(|item| respelled(item, name, number)).collect(),
        Value::Number(_) => number(question),
        other => other.clone(),
    }
}

fn in_quotes(number: &Value) -> Value {
    Value::String(number.to_string())
}

/// A name as protobuf writes it in JSON.
fn camel(name: &str) -> String {
    let mut out = String::new();
    let mut is_first = false;
    for letter in name.chars() {
        match letter {
            '_' => is_first = true,
            letter if std::mem::take(&mut is_first) => out.extend(letter.to_uppercase()),
            letter => out.push(letter),
        }
    }
    out
}

#[test]
fn names_are_respelled_as_protobuf_does() {
    assert_eq!(["profile_typeID", "max_nodes", "start"].map(camel), ["profileTypeID", "maxNodes", "start"]);
}
