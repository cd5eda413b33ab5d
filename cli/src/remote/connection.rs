//! Client of the server that the command line names.

use athanor_chassis::{Clock, ErrorCode, Random, Status};
use athanor_client::{ApiClient, ClientSettings, SettingNames, TlsSettings};

use crate::args::RemoteArgs;

const SETTING_NAMES: SettingNames = SettingNames {
    url: "--url",
    tenant: "--tenant",
    user: "--user",
    token: "--token",
    tls: "--url",
    timeout: "--timeout",
    start_hint: "start a server with `athanor serve`, or set --url or ATHANOR_URL",
};

/// Creates a client from the arguments. Opens no connection.
pub fn client(remote: &RemoteArgs) -> Result<ApiClient, Status> {
    let settings = ClientSettings {
        url: remote.url.clone(),
        tenant: remote.tenant.clone(),
        token: remote.token.clone(),
        user: remote.user.clone(),
        tls: TlsSettings::default(),
        user_agent: concat!("athanor/", env!("CARGO_PKG_VERSION")).to_owned(),
        timeout: remote.timeout,
        names: SETTING_NAMES,
        report_remark: |remark| eprintln!("athanor: {remark}"),
    };
    ApiClient::new(&settings, Clock::system(), Random::system())
}

/// Runs a future on a runtime of the current thread.
pub fn block_on<F: Future>(future: F) -> Result<F::Output, Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Status::new(ErrorCode::Internal, format!("failed to start the event loop: {error}"))
    })?;
    Ok(runtime.block_on(future))
}
