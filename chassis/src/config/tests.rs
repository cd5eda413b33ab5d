use serde::Deserialize;

use super::*;
use crate::units::ByteSize;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    name: String,
    cut: Cut,
    s3: Option<Bucket>,
    tags: BTreeMap<String, String>,
    peers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Cut {
    max_size: ByteSize,
    max_rows: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Bucket {
    bucket: String,
    secret_key: SecretString,
}

impl Default for Cut {
    fn default() -> Self {
        Self { max_size: ByteSize::mib(128), max_rows: 1000 }
    }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (String::from(*name), String::from(*value))).collect()
}

fn yaml(text: &str) -> Result<ConfigSources, ConfigError> {
    ConfigSources::default().with_yaml(Path::new("athanor.yaml"), text)
}

fn refused(sources: Result<ConfigSources, ConfigError>) -> String {
    sources.and_then(ConfigSources::load::<Settings>).unwrap_err().to_string()
}

#[test]
fn each_source_wins_over_those_below_it() {
    let sources = yaml("name: file\ncut:\n  max_size: 1MiB\n  max_rows: 1\npeers: [a, b]\n")
        .unwrap()
        .with_environment(variables(&[
            ("ATHANOR_CUT__MAX_ROWS", "2"),
            ("HOME", "/root"),
            ("ATHANOR_NAME", "env"),
        ]))
        .with_flags(["name=flag"])
        .unwrap();
    let loaded = sources.load::<Settings>().unwrap();
    let expected = Settings {
        name: "flag".to_owned(),
        cut: Cut { max_size: ByteSize::mib(1), max_rows: 2 },
        peers: vec!["a".to_owned(), "b".to_owned()],
        ..Settings::default()
    };
    assert_eq!(loaded.value, expected);

    let file = || SettingSource::File("athanor.yaml".into());
    let told: Vec<_> = loaded.effective_settings().into_iter().map(|e| (e.path, e.value, e.origin)).collect();
    let line = |path: &str, value: &str, origin| (path.to_owned(), value.to_owned(), origin);
    let expected = [
        line("cut.max_rows", "2", SettingSource::Environment("ATHANOR_CUT__MAX_ROWS".to_owned())),
        line("cut.max_size", "\"1MiB\"", file()),
        line("name", "\"flag\"", SettingSource::Flag),
        line("peers", "[\"a\",\"b\"]", file()),
        line("s3", "null", SettingSource::Default),
        line("tags", "{}", SettingSource::Default),
    ];
    let mut told = told;
    told.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(told, expected);
}

#[test]
fn nothing_given_means_defaults() {
    assert_eq!(ConfigSources::default().load::<Settings>().unwrap().value, Settings::default());
    assert_eq!(yaml("# only a comment\n").unwrap().load::<Settings>().unwrap().value, Settings::default());
}

#[test]
fn unknown_keys_are_refused_with_path_nearest_name_and_origin() {
    let message = refused(yaml("cut: {max_sise: 1MiB}"));
    assert!(message.contains("unknown field `max_sise`"), "{message}");
    assert!(message.contains("did you mean `cut.max_size`?"), "{message}");
    assert!(
        message.ends_with("(from file athanor.yaml, line 1)") && message.starts_with("cut.max_sise: "),
        "{message}"
    );

    let message =
        refused(Ok(ConfigSources::default().with_environment(variables(&[("ATHANOR_CUT__MAX_ROW", "1")]))));
    assert!(
        message.contains("`cut.max_rows`?") && message.contains("variable ATHANOR_CUT__MAX_ROW"),
        "{message}"
    );
    let message = refused(ConfigSources::default().with_flags(["s3.buckett=x"]));
    assert!(message.contains("`s3.bucket`?") && message.contains("(from flag --set)"), "{message}");
}

#[test]
fn values_that_do_not_fit_are_refused_with_the_way_out() {
    let message = refused(yaml("cut: {max_size: 1 parsec}"));
    assert!(message.contains("cut.max_size") && message.contains("write for example 128MiB"), "{message}");
    let message = refused(ConfigSources::default().with_flags(["cut.max_rows=many"]));
    assert!(message.starts_with("cut.max_rows: invalid type") && message.contains("flag"), "{message}");
    assert!(refused(yaml("- a\n- b\n")).contains("expected a table of settings"));
    assert!(refused(yaml("a: [")).starts_with("file athanor.yaml: "));
    for flag in ["no-value", "=x", "a..b=1"] {
        assert!(refused(ConfigSources::default().with_flags([flag])).contains("cannot be read"));
    }
    let missing = ConfigSources::default().with_file(Path::new("/does/not/exist.yaml")).unwrap_err();
    assert_eq!(missing.code(), ErrorCode::NotFound);
}

#[test]
fn text_that_looks_like_a_number_is_a_string_where_one_is_wanted() {
    let sources = ConfigSources::default()
        .with_flags(["s3.secret_key=007", "name=12", "tags.zone=1", "peers=[a]"])
        .unwrap();
    let loaded = sources.load::<Settings>().unwrap().value;
    assert_eq!(loaded.s3.unwrap().secret_key.expose(), "007");
    assert_eq!((loaded.name.as_str(), loaded.tags["zone"].as_str(), loaded.peers.len()), ("12", "1", 1));
}

#[test]
fn a_flag_replaces_what_the_file_says_below_it() {
    let sources = yaml("s3: {bucket: b, secret_key: x}").unwrap().with_flags(["s3={bucket: c}"]).unwrap();
    let loaded = sources.load::<Settings>().unwrap();
    assert_eq!(loaded.value.s3.as_ref().unwrap().secret_key, SecretString::default());
    assert_eq!(
        loaded.effective_settings().iter().find(|e| e.path == "s3.bucket").unwrap().origin,
        SettingSource::Flag
    );
}

#[test]
fn secrets_are_never_shown() {
    let loaded = yaml("s3: {secret_key: hunter2}").unwrap().load::<Settings>().unwrap();
    assert_eq!(loaded.value.s3.as_ref().unwrap().secret_key, SecretString::new("hunter2"));
    let shown = format!("{:?} {:?}", loaded.value, loaded.effective_settings());
    assert!(!shown.contains("hunter2") && shown.contains("******"), "{shown}");
}

#[test]
fn what_kubernetes_or_a_client_sets_is_left_alone() {
    let links = variables(&[
        ("ATHANOR_SERVICE_HOST", "10.0.0.1"),
        ("ATHANOR_PORT", "tcp://10.0.0.1:4040"),
        ("ATHANOR_PORT_4040_TCP_ADDR", "10.0.0.1"),
        ("ATHANOR_QUERIER_SERVICE_PORT_HTTP", "4040"),
        ("ATHANOR_URL", "http://127.0.0.1:4040"),
        ("ATHANOR_TOKEN", "t"),
    ]);
    assert_eq!(
        ConfigSources::default().with_environment(links).load::<Settings>().unwrap().value,
        Settings::default()
    );
}

#[test]
fn the_environment_of_this_process_is_read() {
    assert!(process_environment().any(|(name, _)| name == "PATH"));
}

#[test]
fn everything_that_is_wrong_is_reported_at_once_with_its_line() {
    let text = "name: x\ncut:\n  max_sise: 1MiB\n  max_rows: many\npeers:\n- a\n- [b]\ns3:\n  bucket: b\n  secret: x\ncutt: 1\n";
    let sources = yaml(text).unwrap().with_flags(["cut.max_size=1 parsec"]).unwrap();
    let (loaded, errors) = sources.load_partial::<Settings>();
    let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let begins_and_ends = [
        ("cut.max_rows: invalid type", "(from file athanor.yaml, line 4)"),
        ("cut.max_sise: unknown field", "did you mean `cut.max_size`? (from file athanor.yaml, line 3)"),
        ("cut.max_size: ", "(from flag --set)"),
        ("cutt: unknown field", "did you mean `cut`? (from file athanor.yaml, line 11)"),
        ("peers[1]: invalid type", "(from file athanor.yaml, line 7)"),
        ("s3.secret: unknown field", "(from file athanor.yaml, line 10)"),
    ];
    assert_eq!(said.len(), begins_and_ends.len(), "{said:#?}");
    for (begin, end) in begins_and_ends {
        let is_said = said.iter().any(|line| line.starts_with(begin) && line.ends_with(end));
        assert!(is_said, "{begin} {end}: {said:#?}");
    }
    let loaded = loaded.unwrap();
    assert_eq!((loaded.value.name.as_str(), &loaded.value.cut), ("x", &Cut::default()));
    let later = loaded.setting_error("s3.bucket", "there is none".to_owned()).to_string();
    assert_eq!(later, "s3.bucket: there is none (from file athanor.yaml, line 9)");

    let all = ConfigError::from_errors(errors).unwrap();
    assert!(all.to_string().starts_with("6 settings are wrong:\n  "), "{all}");
    assert_eq!((all.code(), all.into_errors().len()), (ErrorCode::Invalid, 6));
}
