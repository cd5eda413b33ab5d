//! Metadata of a stream's schema.

use std::collections::BTreeMap;

use arrow_schema::Metadata;

/// Key of the query, as the JSON of its request.
pub const QUERY_KEY: &str = "athanor.query";
/// Key of the unit of the values.
pub const UNIT_KEY: &str = "athanor.unit";
/// Key of the profile type.
pub const PROFILE_TYPE_KEY: &str = "athanor.profile_type";
/// Key of the resolution, as in the header `Athanor-Resolution`.
pub const RESOLUTION_KEY: &str = "athanor.resolution";
/// Key of the warnings, a JSON list of texts. Absent if the result is complete.
pub const WARNINGS_KEY: &str = "athanor.warnings";

/// Description of a result. The schema of its stream contains it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamMetadata {
    /// Request as JSON.
    pub query: String,
    /// Unit of the values. Empty if the result has no values.
    pub unit: String,
    /// Profile type of the values. Empty if the query names none.
    pub profile_type: String,
    /// Resolution of the data. Empty if it is unknown.
    pub resolution: String,
    /// Warnings of a partial result.
    pub warnings: Vec<String>,
    /// Other numbers and texts of the response, such as totals.
    pub extra: Vec<(String, String)>,
}

impl StreamMetadata {
    /// Returns the entries of the schema. Empty texts are left out.
    pub fn to_entries(&self) -> BTreeMap<String, String> {
        let warnings = if self.warnings.is_empty() {
            String::new()
        } else {
            serde_json::Value::from(self.warnings.clone()).to_string()
        };
        let known = [
            (QUERY_KEY, &self.query),
            (UNIT_KEY, &self.unit),
            (PROFILE_TYPE_KEY, &self.profile_type),
            (RESOLUTION_KEY, &self.resolution),
            (WARNINGS_KEY, &warnings),
        ];
        let known = known.into_iter().map(|(key, value)| (key.to_owned(), value.clone()));
        let entries = known.chain(self.extra.iter().cloned());
        entries.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Returns the metadata of a schema. Unknown keys become extra entries, sorted by key.
    pub fn from_entries(entries: &Metadata) -> Self {
        let text = |key: &str| entries.get(key).cloned().unwrap_or_default();
        let known = [QUERY_KEY, UNIT_KEY, PROFILE_TYPE_KEY, RESOLUTION_KEY, WARNINGS_KEY];
        let others = entries.iter().filter(|(key, _)| !known.contains(&key.as_str()));
        let mut extra: Vec<(String, String)> =
            others.map(|(key, value)| (key.clone(), value.clone())).collect();
        extra.sort();
        StreamMetadata {
            query: text(QUERY_KEY),
            unit: text(UNIT_KEY),
            profile_type: text(PROFILE_TYPE_KEY),
            resolution: text(RESOLUTION_KEY),
            warnings: serde_json::from_str(&text(WARNINGS_KEY)).unwrap_or_default(),
            extra,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_reads_back_from_entries() {
        let metadata = StreamMetadata {
            query: "{\"selector\":\"{}\"}".to_owned(),
            unit: "nanoseconds".to_owned(),
            warnings: vec!["a \"quoted\" block".to_owned(), "b".to_owned()],
            extra: vec![("athanor.total".to_owned(), "7".to_owned())],
            ..StreamMetadata::default()
        };
        let entries = metadata.to_entries();
        assert!(!entries.contains_key(PROFILE_TYPE_KEY));
        assert_eq!(StreamMetadata::from_entries(&entries.into_iter().collect()), metadata);
        assert_eq!(StreamMetadata::default().to_entries(), BTreeMap::new());
    }
}
