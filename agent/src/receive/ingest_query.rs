//! Query of `/ingest`: labels go into the parameter `name`, and a missing time into `from`.
//!
//! All other parameters keep their bytes and their places. If a parameter is given twice, the first one counts,
//! as for servers.

use std::borrow::Cow;

use athanor_chassis::Timestamp;
use athanor_chassis::time::expression::{TimeExpression, TimeSyntax};
use athanor_profile::Labels;
use athanor_profile::labeling::app_name::{AppName, AppNameError};

use super::sender_labels::{SERVICE_LABEL, canonical_label_name};

/// Labels that a server derives from other parameters. The client sends them by those.
const DERIVED_LABELS: [&str; 3] = [SERVICE_LABEL, "app_name", "pyroscope_spy"];
/// Time that differs from the current one, to recognize relative times.
const RELATIVE_TIME_STEP: std::time::Duration = std::time::Duration::from_secs(1);
/// Forms of the opening brace in a query.
const OPENING_BRACES: [&str; 3] = ["{", "%7B", "%7b"];

/// Query string whose parameters are known.
#[derive(Clone, Debug)]
pub struct IngestQuery {
    /// Parameters as sent, in their order.
    parameters: Vec<String>,
    name: AppName,
    from_nanos: i64,
}

impl IngestQuery {
    /// Reads a query, received at a time. Relative times become absolute: the upload may be sent later.
    ///
    /// # Errors
    ///
    /// The application's name is invalid.
    pub fn parse(query: &str, now: Timestamp) -> Result<Self, AppNameError> {
        let parameters = query.split('&').map(str::to_owned).collect();
        let mut parsed = Self { parameters, name: AppName::default(), from_nanos: 0 };
        parsed.name = AppName::parse(&parsed.value("name").unwrap_or_default())?;
        parsed.from_nanos = parsed.fix_time("from", now);
        parsed.fix_time("until", now);
        Ok(parsed)
    }

    /// Returns whether the query has a usable time.
    pub fn has_time(&self) -> bool {
        self.from_nanos != 0
    }

    /// Returns the name of the application.
    pub fn app(&self) -> &str {
        &self.name.app
    }

    /// Returns the labels of the client and those that were added.
    pub fn label(&self, name: &str) -> Option<&str> {
        let name = canonical_label_name(name);
        let label = self.name.labels.iter().find(|(known, _)| canonical_label_name(known) == name);
        label.map(|(_, value)| value.as_str())
    }

    /// Returns the labels.
    pub(super) fn labels(&self) -> Labels {
        Labels::new(self.name.labels.clone())
    }

    /// Returns the first value of a parameter.
    pub fn value(&self, name: &str) -> Option<String> {
        let place = self.place(name)?;
        form_urlencoded::parse(self.parameters[place].as_bytes()).next().map(|(_, value)| value.into_owned())
    }

    /// Adds labels that the client did not send. The grammar of names has no quotes, so `,` and `}` in values
    /// become `_`.
    pub fn add_labels(&mut self, added: &Labels) {
        let mut inserted = Vec::new();
        for (name, value) in added.iter() {
            let value = value.replace([',', '}'], "_").trim().to_owned();
            let is_usable = is_app_label(name) && !value.is_empty();
            if is_usable && self.label(name).is_none() {
                inserted.push(format!("{name}={value}"));
                self.name.labels.insert(name.to_owned(), value);
            }
        }
        if inserted.is_empty() {
            return;
        }
        let inserted = encode(&inserted.join(","));
        let Some(place) = self.place("name") else { return };
        let parameter = &mut self.parameters[place];
        let value = parameter.find('=').map_or(parameter.len(), |equals| equals + 1);
        let braces = OPENING_BRACES.iter().filter_map(|brace| {
            let found = parameter[value..].find(brace)?;
            Some(value + found + brace.len())
        });
        match braces.min() {
            // Of two labels with one name, the last counts: that of the client.
            Some(brace) => parameter.insert_str(brace, &format!("{inserted}%2C")),
            None => parameter.push_str(&format!("%7B{inserted}%7D")),
        }
    }

    /// Gives the profile a time. Its duration stays unknown.
    pub fn set_time(&mut self, time: Timestamp) {
        self.from_nanos = time.nanos();
        let text = time.nanos().to_string();
        self.set("from", &text);
        if self.place("until").is_some() {
            self.set("until", &text);
        }
    }

    /// Returns the query string.
    pub fn into_query(self) -> String {
        self.parameters.join("&")
    }

    /// Makes a relative time absolute. Returns the time in Unix nanoseconds, 0 if it is not usable.
    fn fix_time(&mut self, name: &str, now: Timestamp) -> i64 {
        let Some(time) = self.value(name).and_then(|text| TimeExpression::parse(&text, TimeSyntax::Ingest))
        else {
            return 0;
        };
        // Relative times may reach back before 1970, which no server reads.
        let Some(resolved) = time.resolve(now).filter(|time| time.nanos() > 0) else { return 0 };
        if time.resolve(now.minus(RELATIVE_TIME_STEP)) != Some(resolved) {
            self.set(name, &resolved.nanos().to_string());
        }
        resolved.nanos()
    }

    /// Sets the first value of a parameter.
    fn set(&mut self, name: &str, value: &str) {
        let parameter = format!("{name}={}", encode(value));
        match self.place(name) {
            Some(place) => self.parameters[place] = parameter,
            None => self.parameters.push(parameter),
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.parameters.iter().position(|parameter| {
            let mut pairs = form_urlencoded::parse(parameter.as_bytes());
            pairs.next().is_some_and(|(key, _)| key == Cow::Borrowed(name))
        })
    }
}

fn encode(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Returns whether a label can be added to the name of an application.
fn is_app_label(name: &str) -> bool {
    let has_characters = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    has_characters && !name.is_empty() && !name.starts_with("__") && !DERIVED_LABELS.contains(&name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Labels::new(pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())))
    }

    fn rewritten(query: &str, pairs: &[(&str, &str)]) -> String {
        let mut query = IngestQuery::parse(query, NOW).unwrap();
        query.add_labels(&labels(pairs));
        query.into_query()
    }

    #[test]
    fn labels_go_before_those_of_the_client() {
        let added = [("pod", "p 1"), ("zone", "a,b}c")];
        for (query, expected) in [
            ("name=app", "name=app%7Bpod%3Dp+1%2Czone%3Da_b_c%7D"),
            (
                "from=5&name=app.cpu{x=1}&until=7",
                "from=5&name=app.cpu{pod%3Dp+1%2Czone%3Da_b_c%2Cx=1}&until=7",
            ),
            ("name=app%7bpod%3dq%7D", "name=app%7bzone%3Da_b_c%2Cpod%3dq%7D"),
            ("name=app{pod=q,zone=r}", "name=app{pod=q,zone=r}"),
            ("name=app{pod&format=pprof", "name=app{pod%3Dp+1%2Czone%3Da_b_c%2Cpod&format=pprof"),
        ] {
            assert_eq!(rewritten(query, &added), expected);
        }
    }

    #[test]
    fn labels_with_another_meaning_are_not_added() {
        let added = [("service_name", "s"), ("pyroscope_spy", "x"), ("__session_id__", "y"), ("a-b", "z")];
        assert_eq!(rewritten("name=app&spyName=gospy", &added), "name=app&spyName=gospy");
        assert_eq!(rewritten("name=app{k8s.pod=p}", &[("k8s_pod", "q")]), "name=app{k8s.pod=p}");
    }

    #[test]
    fn relative_times_become_absolute() {
        let query = IngestQuery::parse("name=a&from=now-10s&until=now", NOW).unwrap();
        assert!(query.has_time());
        assert_eq!(query.into_query(), "name=a&from=1799999990000000000&until=1800000000000000000");
        let query = IngestQuery::parse("name=a&from=1799999990&until=1800000000", NOW).unwrap();
        assert_eq!(query.into_query(), "name=a&from=1799999990&until=1800000000");
    }

    #[test]
    fn missing_time_is_set() {
        for (query, expected) in [
            ("name=a", "name=a&from=1800000000000000000"),
            ("from=x&name=a&from=3", "from=1800000000000000000&name=a&from=3"),
            ("name=a&from=now-105y", "name=a&from=1800000000000000000"),
            ("name=a&until=7", "name=a&until=1800000000000000000&from=1800000000000000000"),
        ] {
            let mut query = IngestQuery::parse(query, NOW).unwrap();
            assert!(!query.has_time());
            query.set_time(NOW);
            assert!(query.has_time());
            assert_eq!(query.into_query(), expected);
        }
        assert_eq!(IngestQuery::parse("from=1", NOW).unwrap_err(), AppNameError::Empty);
    }

    fn other_parameters(query: &str) -> Vec<String> {
        let is_other = |parameter: &&str| {
            let pair = form_urlencoded::parse(parameter.as_bytes()).next();
            pair.is_none_or(|(name, _)| !matches!(&*name, "name" | "from" | "until"))
        };
        query.split('&').filter(is_other).map(str::to_owned).collect()
    }

    proptest! {
        #[test]
        fn rewriting_keeps_other_parameters_and_labels(
            name in "[a-z./]{1,5}(\\{([a-c]=[a-z =%+]{0,4},){0,3}[a-c=}{%,]{0,4}\\}?)?",
            before in "([a-zA-Z=%&+é;]|%4[0-9A-F]){0,20}",
            after in "(&[a-zA-Z=%+;]{0,20}){0,4}",
            values in proptest::collection::btree_map("[a-d]", "[a-z,} ]{0,4}", 0..4),
        ) {
            let query = format!("{before}&name={}{after}", encode(&name));
            let Ok(mut parsed) = IngestQuery::parse(&query, NOW) else { return Ok(()) };
            let sent = parsed.name.clone();
            parsed.add_labels(&Labels::new(values.clone()));
            let all = parsed.name.clone();
            let has_time = parsed.has_time();
            if !has_time {
                parsed.set_time(NOW);
            }
            let rewritten = parsed.into_query();
            prop_assert_eq!(other_parameters(&rewritten), other_parameters(&query));
            let again = IngestQuery::parse(&rewritten, NOW).unwrap();
            prop_assert!(again.has_time());
            prop_assert_eq!(&again.name, &all);
            prop_assert!(sent.labels.iter().all(|(name, value)| all.labels.get(name) == Some(value)));
            prop_assert_eq!(&sent.app, &all.app);
        }
    }
}
