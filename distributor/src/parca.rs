//! Labels of Parca's agents and scrapers. The metric keeps the name that they send. The service is in other
//! labels than elsewhere.

use athanor_profile::labeling::normalize::SERVICE_LABEL;

/// Labels that give the service if `service_name` is absent. The first label present wins.
const SERVICE_SOURCE_LABELS: [&str; 6] = ["service", "app", "container", "systemd_unit", "job", "comm"];

/// Adds the service label, if it is absent and another label gives the service.
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
