//! Files that other tools open: pprof, folded stacks, speedscope, call graphs, OpenTelemetry's profiles.

use athanor_proto::google::v1::Profile;
use prost::Message;
use serde_json::Value;

use crate::query_consistency::asker::{Answers, Asker, whole};
use crate::query_consistency::decoded::{self, Lines, Stacks};
use crate::query_consistency::naive::{Naive, Record};
use crate::query_consistency::otlp;
use crate::query_consistency::pages::asked_for;
use crate::query_consistency::profiles::{PERIOD, SAMPLES, TYPE};
use crate::query_consistency::sums::{calls, cut, lines};

const FEW: usize = 5;
/// Functions of a call graph where nobody says how many.
const FUNCTIONS: usize = 100;
/// The service of which two of the files are.
const SERVICE: &str = "service1";

/// What a file says of itself: what is measured, between two samples and how much that is, when, for how long. Without any
/// profile nobody knows how much.
fn header(naive: &Naive, has_any: bool) -> (Vec<[String; 2]>, i64, [i64; 2]) {
    let cpu = ["cpu".to_owned(), "nanoseconds".to_owned()];
    let times = [naive.start * 1_000_000, (naive.end - naive.start) * 1_000_000];
    (vec![cpu.clone(), cpu], if has_any { PERIOD } else { 0 }, times)
}

/// What is to be answered.
pub fn expected(naive: &Naive) -> Answers {
    let any = |_: &_| true;
    let all = lines(naive.usual(), any);
    let is_of_service = |record: &&Record| record.label("service_name") == SERVICE;
    let of_service = lines(naive.usual().filter(is_of_service), any);
    let samples = lines(naive.within().filter(|record| record.is_of(SAMPLES)), any);
    let otlp = otlp::Read {
        service: SERVICE.to_owned(),
        header: header(naive, !of_service.is_empty()),
        stacks: of_service.clone(),
    };
    let names = decoded::by_names(&all);
    Answers::from([
        ("pprof file", format!("{:?}", (header(naive, !all.is_empty()), &all))),
        ("pprof file, cut", format!("{:?}", cut(&names, FEW))),
        ("folded", format!("{names:?}")),
        ("folded, cut", format!("{:?}", cut(&names, FEW))),
        ("speedscope", format!("{SERVICE} {:?}", decoded::by_names(&of_service))),
        ("DOT", format!("{:?}", calls([&samples], FUNCTIONS))),
        ("OTLP", format!("{otlp:?}")),
    ])
}

/// Stacks of a text of lines.
fn folded(text: &str) -> Stacks<1> {
    let mut stacks = Stacks::new();
    for line in text.lines() {
        let (path, value) = line.rsplit_once(' ').unwrap();
        let path: Vec<String> = path.split(';').map(str::to_owned).collect();
        assert!(stacks.insert(path, [value.parse().unwrap()]).is_none(), "{line:?} is there twice");
    }
    stacks
}

/// Stacks of a document of speedscope, and whose they are.
fn speedscope(bytes: &[u8]) -> String {
    let document: Value = serde_json::from_slice(bytes).unwrap();
    let [profile] = &document["profiles"].as_array().unwrap()[..] else { panic!("{document}") };
    assert_eq!((&profile["type"], &profile["unit"]), (&Value::from("sampled"), &Value::from("nanoseconds")));
    let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
    assert_eq!(samples.len(), weights.len());
    let (mut stacks, mut sum) = (Stacks::new(), 0);
    for (sample, weight) in samples.iter().zip(weights) {
        let name =
            |frame: &Value| document["shared"]["frames"][frame.as_u64().unwrap() as usize]["name"].clone();
        let path = sample.as_array().unwrap().iter().map(|frame| name(frame).as_str().unwrap().to_owned());
        let weight = weight.as_i64().unwrap();
        stacks.entry(path.collect()).or_insert([0])[0] += weight;
        sum += weight;
    }
    assert_eq!((&profile["startValue"], &profile["endValue"]), (&Value::from(0), &Value::from(sum)));
    format!("{} {stacks:?}", document["name"].as_str().unwrap())
}

/// What is answered.
pub async fn asked(asker: &Asker) -> Answers {
    let mut answers = Answers::new();
    let all = asked_for(asker, &format!("{TYPE}{{}}"));
    let of_service = asked_for(asker, &format!("{TYPE}{{service_name={SERVICE:?}}}"));
    let of_samples = asked_for(asker, &format!("{SAMPLES}{{}}"));
    let pprof = whole!(asker, export, &all);
    let pprof = Profile::decode(&pprof.body[..]).unwrap();
    let stacks: Lines = decoded::pprof(&pprof);
    answers.insert("pprof file", format!("{:?}", (decoded::header(&pprof), stacks)));
    let few = whole!(asker, export, &format!("{all}&format=pprof&maxNodes={FEW}"));
    let few = decoded::pprof(&Profile::decode(&few.body[..]).unwrap());
    answers.insert("pprof file, cut", format!("{:?}", decoded::by_names(&few)));
    for (question, query) in [
        ("folded", format!("{all}&format=folded")),
        ("folded, cut", format!("{all}&format=folded&maxNodes={FEW}")),
    ] {
        let text = whole!(asker, export, &query);
        answers.insert(question, format!("{:?}", folded(std::str::from_utf8(&text.body).unwrap())));
    }
    let document = whole!(asker, export, &format!("{of_service}&format=speedscope"));
    answers.insert("speedscope", speedscope(&document.body));
    let graph = whole!(asker, export, &format!("{of_samples}&format=dot"));
    let graph = decoded::calls::<1>(std::str::from_utf8(&graph.body).unwrap());
    answers.insert("DOT", format!("{graph:?}"));
    let message = whole!(asker, export, &format!("{of_service}&format=otlp"));
    answers.insert("OTLP", format!("{:?}", otlp::read(&message.body)));
    answers
}
