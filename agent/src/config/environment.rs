//! Environment variables that the agent reads.

use std::path::{Path, PathBuf};

use athanor_chassis::config::SecretString;

/// Name of the agent's folder below a folder for state.
const STATE_FOLDER_NAME: &str = "athanor-agent";
const SYSTEM_STATE_FOLDER: &str = "/var/lib/athanor-agent";

/// Settings in the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `ATHANOR_URL`: URL of the server.
    pub url: Option<String>,
    /// `ATHANOR_TENANT`: tenant of all profiles.
    pub tenant: Option<String>,
    /// `ATHANOR_TOKEN`: token of the `Authorization` header.
    pub token: Option<SecretString>,
    /// True if the process runs in a Kubernetes cluster.
    pub is_in_cluster: bool,
    /// `NODE_NAME`: node of the cluster that the agent runs on.
    pub node_name: Option<String>,
    /// Folder for state: that of systemd, or of the user.
    state_folder: Option<PathBuf>,
}

impl Environment {
    /// Reads variables, such as those of [`athanor_chassis::config::process_environment`]. Empty ones are absent.
    pub fn from_variables(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut environment = Environment::default();
        let mut user_state = None;
        let mut home = None;
        for (name, value) in variables.into_iter().filter(|(_, value)| !value.is_empty()) {
            match name.as_str() {
                "ATHANOR_URL" => environment.url = Some(value),
                "ATHANOR_TENANT" => environment.tenant = Some(value),
                "ATHANOR_TOKEN" => environment.token = Some(SecretString::new(value)),
                "KUBERNETES_SERVICE_HOST" => environment.is_in_cluster = true,
                "NODE_NAME" => environment.node_name = Some(value),
                "STATE_DIRECTORY" => environment.state_folder = value.split(':').next().map(PathBuf::from),
                "XDG_STATE_HOME" => user_state = Some(Path::new(&value).join(STATE_FOLDER_NAME)),
                "HOME" => home = Some(Path::new(&value).join(".local/state").join(STATE_FOLDER_NAME)),
                _ => {}
            }
        }
        environment.state_folder = environment.state_folder.or(user_state).or(home);
        environment
    }

    /// Returns the folder of spools if none is configured.
    pub fn spool_folder(&self) -> PathBuf {
        let state = self.state_folder.clone();
        state.unwrap_or_else(|| PathBuf::from(SYSTEM_STATE_FOLDER)).join("spool")
    }
}
