//! Selectors of series by their labels.

use std::fmt;
use std::str::FromStr;

use athanor_profile::{Labels, labeling::pattern};
use regex::Regex;

use crate::request::selector_parser::{
    self, MAX_MATCHERS, MAX_REGEXES, MatchOperator, RawMatcher, SelectorError,
};

/// Conjunction of matchers in Prometheus syntax: `{a="b", c!="d", e=~"x.*", f!~"y"}`.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    matchers: Vec<Matcher>,
}

/// Condition on one label. A missing label has the empty value.
#[derive(Clone, Debug)]
pub struct Matcher {
    name: String,
    operator: MatchOperator,
    value: String,
    regex: Option<Regex>,
}

impl Selector {
    /// Returns true if all matchers hold.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matchers.iter().all(|matcher| matcher.matches(labels.get(&matcher.name).unwrap_or_default()))
    }
    /// Returns a selector with the matchers of both.
    pub fn and(mut self, other: Selector) -> Result<Selector, SelectorError> {
        self.matchers.extend(other.matchers);
        self.check()
    }
    /// Adds a matcher: the label must have this value.
    pub fn with_equal(self, name: &str, value: &str) -> Result<Selector, SelectorError> {
        let operator = MatchOperator::Equal;
        let name = name.to_owned();
        let value = value.to_owned();
        self.and(Selector { matchers: vec![Matcher { name, operator, value, regex: None }] })
    }
    /// Sorts the matchers and removes duplicates.
    pub(crate) fn sort_matchers(&mut self) {
        self.matchers.sort_by(|left, right| left.key().cmp(&right.key()));
        self.matchers.dedup_by(|left, right| left.key() == right.key());
    }
    /// Removes the first equality matcher of a label, and returns its value.
    pub fn take_equal(&mut self, name: &str) -> Option<String> {
        self.take_equal_if(name, |_| true)
    }
    /// Removes the first equality matcher of a label whose value `is_wanted`, and returns the value.
    pub fn take_equal_if(&mut self, name: &str, is_wanted: impl Fn(&str) -> bool) -> Option<String> {
        let is_it = |matcher: &Matcher| {
            matcher.name == name && matcher.operator == MatchOperator::Equal && is_wanted(&matcher.value)
        };
        let place = self.matchers.iter().position(is_it)?;
        Some(self.matchers.remove(place).value)
    }
    fn check(self) -> Result<Selector, SelectorError> {
        if self.matchers.len() > MAX_MATCHERS {
            return Err(SelectorError::TooMany);
        }
        let regexes = self.matchers.iter().filter(|matcher| matcher.regex.is_some()).count();
        if regexes > MAX_REGEXES { Err(SelectorError::TooManyRegexes) } else { Ok(self) }
    }
    /// Returns all matchers of the selector.
    pub fn matchers(&self) -> &[Matcher] {
        &self.matchers
    }
    /// Compiles parsed matchers, after checking their number.
    pub(crate) fn from_raw(written: Vec<RawMatcher>) -> Result<Self, SelectorError> {
        if written.len() > MAX_MATCHERS {
            return Err(SelectorError::TooMany);
        }
        let is_regex =
            |raw: &&RawMatcher| matches!(raw.operator, MatchOperator::Match | MatchOperator::NotMatch);
        if written.iter().filter(is_regex).count() > MAX_REGEXES {
            return Err(SelectorError::TooManyRegexes);
        }
        let matchers = written.into_iter().map(|raw| Matcher::new(raw.name, raw.operator, raw.value, raw.at));
        Ok(Selector { matchers: matchers.collect::<Result<_, _>>()? })
    }
}

impl Matcher {
    /// Creates a matcher. `at` is the position of its value, for errors.
    fn new(name: String, operator: MatchOperator, value: String, at: usize) -> Result<Self, SelectorError> {
        let regex = match operator {
            MatchOperator::Equal | MatchOperator::NotEqual => None,
            MatchOperator::Match | MatchOperator::NotMatch => Some(compile(&value, at)?),
        };
        Ok(Matcher { name, operator, value, regex })
    }
    /// Returns the name of the label.
    pub fn name(&self) -> &str {
        &self.name
    }
    fn key(&self) -> (&str, &str, &str) {
        (&self.name, self.operator.text(), &self.value)
    }
    /// Returns the operator and its operand.
    pub(crate) fn comparison(&self) -> (MatchOperator, &str) {
        (self.operator, &self.value)
    }
    /// Returns true if a value matches.
    pub fn matches(&self, value: &str) -> bool {
        let is_match = || self.regex.as_ref().is_some_and(|regex| regex.is_match(value));
        match self.operator {
            MatchOperator::Equal => self.value == value,
            MatchOperator::NotEqual => self.value != value,
            MatchOperator::Match => is_match(),
            MatchOperator::NotMatch => !is_match(),
        }
    }
}

/// Compiles a regular expression that must match the whole value.
fn compile(pattern: &str, at: usize) -> Result<Regex, SelectorError> {
    pattern::compile_full_match(pattern).map_err(|error| SelectorError::Regex {
        at,
        pattern: pattern.into(),
        why: error.why,
    })
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Selector::from_raw(selector_parser::parse_matchers(text)?)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("{")?;
        for (at, matcher) in self.matchers.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            let name = selector_parser::quote_name(&matcher.name);
            let value = selector_parser::quote_value(&matcher.value);
            write!(out, "{comma}{name}{}{value}", matcher.operator.text())?;
        }
        out.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Labels::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }
    fn picks(selector: &str, pairs: &[(&str, &str)]) -> bool {
        selector.parse::<Selector>().unwrap().matches(&labels(pairs))
    }

    #[test]
    fn every_operator_means_what_prometheus_says() {
        let shop = [("service_name", "shop"), ("zone", "eu-1")];
        for (selector, expected) in [
            ("{}", true),
            (r#"{service_name="shop"}"#, true),
            (r#"{service_name="sho"}"#, false),
            (r#"{service_name!="shop"}"#, false),
            (r#"{zone=~"eu-.*", service_name=~"shop|mail"}"#, true),
            (r#"{zone=~"eu"}"#, false),
            (r#"{zone=~"eu|x.*"}"#, false),
            (r#"{zone!~"eu"}"#, true),
            (r#"{zone!~"eu-."}"#, false),
            (r#"{ "zone" = 'eu-1' , }"#, true),
            (r#"{missing=""}"#, true),
            (r#"{missing!=""}"#, false),
            (r#"{missing=~".*"}"#, true),
            (r#"{missing=~".+"}"#, false),
        ] {
            assert_eq!(picks(selector, &shop), expected, "{selector}");
        }
        assert!(picks("{a=~\"x.y\"}", &[("a", "x\ny")]), "a dot matches a line's end");
        assert!(picks(r#"{"ein name"="\u00e4\x41\n"}"#, &[("ein name", "äA\n")]));
    }

    #[test]
    fn bad_and_huge_patterns_are_refused_with_their_place() {
        let refused = |text: &str| text.parse::<Selector>().unwrap_err().to_string();
        assert!(refused(r#"{a=~"("}"#).starts_with("regular expression \"(\" at character 5: "));
        assert!(refused(r#"{a=~")|("}"#).contains("at character 5: a ) closes no group"));
        assert!(refused(r#"{a=~"(?:.{1000}){1000}"}"#).contains("simplify the pattern"));
        assert!(refused(&format!("{{a=~\"{}x{}\"}}", "(".repeat(200), ")".repeat(200))).contains("nest"));
    }

    #[test]
    fn conditions_add_up_within_bounds() {
        let (shop, mut name) =
            (r#"{a="b"}"#.parse::<Selector>().unwrap(), r#"{n="x",n=~"y"}"#.parse().unwrap());
        assert_eq!(Selector::take_equal(&mut name, "n").as_deref(), Some("x"));
        assert_eq!(Selector::take_equal(&mut name, "n"), None);
        assert_eq!(shop.clone().and(name).unwrap().to_string(), r#"{a="b", n=~"y"}"#);
        assert_eq!(shop.with_equal("c", "d").unwrap().to_string(), r#"{a="b", c="d"}"#);
        let regexes = |count: usize| format!("{{{}}}", r#"a=~"x","#.repeat(count)).parse::<Selector>();
        assert_eq!(regexes(MAX_REGEXES + 1).unwrap_err(), SelectorError::TooManyRegexes);
        let most = regexes(MAX_REGEXES).unwrap();
        assert!(most.clone().and(most).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Selector>();
        }

        #[test]
        fn no_text_of_the_language_panics(text in r#"[{}=!~",'`\\a-c0-9_ .(*]{0,40}"#) {
            if let Ok(selector) = text.parse::<Selector>() {
                selector.matches(&labels(&[("a", "b"), ("c", "")]));
            }
        }

        #[test]
        fn what_is_printed_reads_back(names in prop::collection::vec(("\\PC{1,8}", "\\PC{0,8}", 0..2u8), 0..5)) {
            let matchers = names.into_iter().map(|(name, value, negated)| {
                let operator = if negated == 1 { MatchOperator::NotEqual } else { MatchOperator::Equal };
                Matcher::new(name, operator, value, 0).unwrap()
            });
            let printed = Selector { matchers: matchers.collect() }.to_string();
            prop_assert_eq!(printed.parse::<Selector>().unwrap().to_string(), printed);
        }
    }
}
