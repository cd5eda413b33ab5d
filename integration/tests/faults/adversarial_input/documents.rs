//! Text, JSON, and the trees of old clients.

use crate::adversarial_input::BODY;
use crate::adversarial_input::bombs::{Bomb, PLAIN, ingest, request};

pub fn all() -> Vec<Bomb> {
    let whole = [printed(), graphs()].into_iter().flatten().map(Bomb::of_body);
    let trees = trees().into_iter().map(Bomb::of_tables);
    [texts(), brackets(), speedscopes()].into_iter().flatten().chain(whole).chain(trees).collect()
}

/// Those that take most.
pub fn greedy() -> Vec<Bomb> {
    let mut greedy = texts();
    greedy.retain(|bomb| bomb.name.ends_with("different stacks"));
    greedy.extend(printed().into_iter().filter(|bomb| bomb.name.ends_with("different samples")));
    greedy.extend(speedscopes().into_iter().filter(|bomb| bomb.name.ends_with("a frame deeper each time")));
    greedy
}

fn texts() -> Vec<Bomb> {
    let distinct: String = (0..PLAIN / 14).map(|number| format!("f{number};g 1\n")).collect();
    let mut bombs = Vec::new();
    for (name, text, status, word) in [
        ("empty frames without end", [vec![b';'; PLAIN], b" 1\n".to_vec()].concat(), 200, ""),
        ("frames without end", [b"a;".repeat(PLAIN / 2), b" 1\n".to_vec()].concat(), 200, ""),
        ("different stacks", distinct.into_bytes(), 400, "limits.max_profile_size_bytes"),
        ("lines that say nothing", vec![b'\n'; PLAIN], 200, ""),
        ("bytes that are no text", vec![0xff; PLAIN], 422, "line 1: not valid UTF-8"),
    ] {
        bombs.extend(
            ["groups", "lines"].map(|format| ingest(name, format, text.clone(), status, word).of_tables()),
        );
    }
    let labels: String = (0..2000).map(|number| format!("l{number}=v,")).collect();
    let path = format!("/ingest?name=hostile.cpu%7B{}%7D", labels.replace('=', "%3D"));
    bombs.push(request("many labels", &path, b"a 1\n".to_vec(), 400, "limits.max_label_names_per_series"));
    bombs
}

/// What `perf script` prints.
fn printed() -> Vec<Bomb> {
    let samples: String = (0..PLAIN / 40)
        .map(|number| format!("m 1 1.5: 1 cycles:\n\t{number:x} f{number:x} (x)\n\n"))
        .collect();
    let deep = [b"m 1 1.5: 1 cycles:\n".to_vec(), b"\ta f (x)\n".repeat(PLAIN / 9), b"\n".to_vec()].concat();
    // Each row has a value for each event, and most are 0.
    let rare: String = (0..PLAIN / 48)
        .map(|number| {
            format!("m 1 1.5: 1 e{}:\n\ta g{}\n\tb f{}\n\n", number % 1000, number / 400, number % 400)
        })
        .collect();
    let events: String = (0..PLAIN / 24).map(|number| format!("m 1 1.5: 1 e{number}:\n\ta f\n\n")).collect();
    vec![
        ingest(
            "a first line without end",
            "perf_script",
            b"a ".repeat(PLAIN / 2),
            422,
            "does not begin a sample",
        ),
        ingest("numbers without end", "perf_script", b"1 ".repeat(PLAIN / 2), 422, "does not begin a sample"),
        ingest(
            "colons without end",
            "perf_script",
            b"a 1 1.5: ".repeat(PLAIN / 9),
            422,
            "does not begin a sample",
        ),
        ingest("short samples", "perf_script", b"a 1 1.5: x:\n\n".repeat(PLAIN / 13), 200, ""),
        ingest("a stack without end", "perf_script", deep, 422, "100001 frames"),
        ingest(
            "different samples",
            "perf_script",
            samples.into_bytes(),
            422,
            "different frames, the limit is",
        ),
        ingest("rare events", "perf_script", rare.into_bytes(), 422, "values, samples times types"),
        ingest("events without end", "perf_script", events.into_bytes(), 422, "1001 events"),
    ]
}

fn brackets() -> Vec<Bomb> {
    let nested = b"[".repeat(PLAIN);
    let fields = [b"{".to_vec(), b"\"a\":[[[[".repeat(PLAIN / 8)].concat();
    let mut bombs = Vec::new();
    for format in ["speedscope", "flamebearer"] {
        bombs.push(ingest("brackets without end", format, nested.clone(), 422, "invalid type: sequence"));
        bombs.push(ingest("objects without end", format, fields.clone(), 422, "expected `,` or `]`"));
    }
    bombs
}

/// Flame graphs as JSON.
fn graphs() -> Vec<Bomb> {
    let graph = |names: &str, levels: &str, ticks: usize| {
        let metadata = r#"{"format":"single","units":"samples","sampleRate":100,"name":"cpu"}"#;
        format!(
            r#"{{"version":1,"flamebearer":{{"names":[{names}],"levels":[{levels}],"numTicks":{ticks}}},"metadata":{metadata}}}"#
        )
        .into_bytes()
    };
    let two = r#""total","main""#;
    let deep = format!("[0,1,0,0]{}", ",[0,1,0,1]".repeat(PLAIN / 10));
    let wide = PLAIN / 8;
    let bars = format!("[0,{wide},0,0],[{}]", vec!["0,1,1,1"; wide].join(","));
    let named = PLAIN / 18;
    let names: String = (0..named).map(|number| format!(",\"f{number}\"")).collect();
    let different = (1..=named).map(|name| format!("0,1,1,{name}")).collect::<Vec<_>>().join(",");
    let different = format!("[0,{named},0,0],[{different}]");
    let broken = format!("[0,1,0,0],[{}1]", "1,".repeat(PLAIN / 2));
    vec![
        ingest("levels without end", "flamebearer", graph(two, &deep, 1), 422, "100001 frames"),
        ingest("bars without end", "flamebearer", graph(two, &bars, wide), 422, "699049 bars"),
        ingest(
            "names without end",
            "flamebearer",
            graph(&format!("\"total\"{names}"), &different, named),
            422,
            "names, the limit is",
        ),
        ingest("numbers that are no bars", "flamebearer", graph(two, &broken, 1), 422, "699049 bars"),
    ]
}

fn speedscopes() -> Vec<Bomb> {
    let document = |frames: &str, profile: &str| {
        let schema = "https://www.speedscope.app/file-format-schema.json";
        format!(r#"{{"$schema":"{schema}","shared":{{"frames":[{frames}]}},"profiles":[{profile}]}}"#)
            .into_bytes()
    };
    let one = r#"{"name":"a"}"#;
    let profile = |kind: &str, end: usize, rest: &str| {
        format!(r#"{{"type":"{kind}","name":"p","unit":"none","startValue":0,"endValue":{end},{rest}}}"#)
    };
    let event = |kind: &str, at: usize| format!(r#"{{"type":"{kind}","frame":0,"at":{at}}}"#);
    let count = PLAIN / 40;
    // Each moment has a frame more below it than the last one: written out they grow with the square.
    let opened: Vec<String> = (0..count).map(|at| event("O", at)).collect();
    let closed: Vec<String> = (0..count / 2).flat_map(|at| [event("O", at), event("C", at + 1)]).collect();
    let half: Vec<String> = (0..count / 2).map(|at| event("O", at)).collect();
    let nested: Vec<String> =
        half.into_iter().chain((0..count / 2).map(|at| event("C", count / 2 + at))).collect();
    let evented =
        |events: &[String]| profile("evented", count, &format!("\"events\":[{}]", events.join(",")));
    let sampled = |samples: &str, weights: &str| {
        profile("sampled", count, &format!("\"samples\":[{samples}],\"weights\":[{weights}]"))
    };
    let frames: String = (0..PLAIN / 30).map(|number| format!("{{\"name\":\"f{number}\"}},")).collect();
    let stacks = vec!["[0]"; PLAIN / 6].join(",");
    let weights = vec!["1"; PLAIN / 6].join(",");
    let deep = format!("[{}]", vec!["0"; PLAIN / 2].join(","));
    let profiles = vec![sampled("[0]", "1"); PLAIN / 110].join(",");
    let weighed = {
        let weights = vec!["1"; BODY as usize / 20].join(",");
        vec![sampled("[0]", &weights); 9].join(",")
    };
    let differing: Vec<String> =
        (0..10_000).map(|number| sampled("[0]", "1").replace("\"p\"", &format!("\"p{number}\""))).collect();
    let long: String = (0..40).map(|number| format!("l{number}%3D{},", "v".repeat(1000))).collect();
    let labelled = format!("/ingest?format=speedscope&name=hostile.cpu%7B{long}%7D");
    let named = |name, body, status, word| ingest(name, "speedscope", body, status, word).of_body();
    vec![
        named("many frames", document(&format!("{frames}{one}"), &sampled("[0]", "1")), 422, "174763 frames"),
        named("frames that stay open", document(one, &evented(&opened)), 422, "100001 frames"),
        named("a frame deeper each time", document(one, &evented(&nested)), 422, "100001 frames"),
        named("frames that open and close", document(one, &evented(&closed)), 200, ""),
        named("samples without end", document(one, &sampled(&stacks, &weights)), 200, ""),
        named(
            "weights without samples",
            document(one, &sampled("[0]", &weights)),
            422,
            "each sample needs one weight",
        ),
        named("a sample without end", document(one, &sampled(&deep, "1")), 422, "100001 frames"),
        named("profiles without end", document(one, &profiles), 200, ""),
        named("weights of several profiles", document(one, &weighed), 422, "bytes of samples in memory"),
        request(
            "speedscope: profiles with long labels",
            &labelled,
            document(one, &differing.join(",")),
            400,
            "limits.max_label_names_per_series",
        ),
    ]
}

fn trees() -> Vec<Bomb> {
    // A node: length of its name, name, self value, count of children.
    let chain = [1, b'a', 1, 1].repeat(PLAIN / 4);
    // Each name continues that of its parent, so written out they grow with the square.
    let long = [&[0x80, 0x08][..], &[b'a'; 1024], &[1, 1]].concat().repeat(PLAIN / 2 / 1028);
    let mut bombs = Vec::new();
    for format in ["trie", "tree"] {
        bombs.push(ingest("a chain", format, chain.clone(), 400, "limits.max_profile_size_bytes"));
        let (status, word) =
            if format == "trie" { (400, "limits.max_profile_size_bytes") } else { (422, "truncated") };
        bombs.push(ingest("a chain of long names", format, long.clone(), status, word));
        let children = [[0, 0].as_slice(), &[0xff; 9], &[1]].concat();
        bombs.push(ingest("children that are not there", format, children, 422, "within the name of a node"));
        bombs.push(ingest(
            "a name that is not there",
            format,
            [&[0xff; 8][..], &[0x7f]].concat(),
            422,
            "within the name of a node",
        ));
    }
    bombs
}
