//! Profiles with the labels that agents and scrapers of Parca give: their metric is called as they say, and whose they are is
//! told by other labels than elsewhere.

use athanor_profile::normalize::SERVICE_LABEL;

/// Labels that say whose a profile is where none says it outright; the first that is there does.
const SERVICE_SOURCE_LABELS: [&str; 6] = ["service", "app", "container", "systemd_unit", "job", "comm"];

/// Adds whose a profile is, where its labels tell.
pub(crate) fn add_service_label(mut labels: Vec<(String, String)>) -> Vec<(String, String)> {
    let value = |name: &str| labels.iter().find(|(known, value)| known == name && !value.is_empty());
    if labels.iter().any(|(name, _)| name == SERVICE_LABEL) {
        return labels;
    }
    let service = SERVICE_SOURCE_LABELS.into_iter().find_map(value).map(|(_, value)| value.clone());
    labels.extend(service.map(|service| (SERVICE_LABEL.to_owned(), service)));
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(labels: &[(&str, &str)]) -> Option<String> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        add_service_label(labels).into_iter().find(|(name, _)| name == SERVICE_LABEL).map(|(_, value)| value)
    }

    #[test]
    fn whose_a_profile_is_follows_from_its_labels() {
        let of_an_agent =
            [("__name__", "parca_agent"), ("node", "n1"), ("comm", "nginx"), ("container", "web")];
        assert_eq!(service(&of_an_agent).as_deref(), Some("web"));
        assert_eq!(service(&[("job", "scraped"), ("comm", "x")]).as_deref(), Some("scraped"));
        assert_eq!(service(&[("container", ""), ("comm", "x")]).as_deref(), Some("x"));
        assert_eq!(service(&[("service_name", "a"), ("app", "b")]).as_deref(), Some("a"));
        assert_eq!(
            service(&[("service_name", ""), ("app", "b")]).as_deref(),
            Some(""),
            "that is refused as ever"
        );
        assert_eq!(service(&[("node", "n1")]), None);
    }
}
