//! `serve`, `config` and `metastore recover`: commands that use the settings of a server in this process.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::config::{
    ConfigError, ConfigSources, EffectiveSetting, LoadedConfig, SettingSource, process_environment,
};
use athanor_chassis::net::LocalNet;
use athanor_chassis::{Clock, ErrorCode, LimitOverrides, Status, Telemetry, TenantLimits};
use athanor_http_server::HttpListener;
use athanor_ingester::{RelabelRulesError, find_relabel_errors};
use athanor_server::secrets::{SECRET_SETTINGS, warn_if_readable};
use athanor_server::{
    NodeDeps, ServerConfig, ServerNode, SettingError, StartError, find_late_profile_error, rebuild_catalog,
};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{ServeArgs, ServerConfigArgs};
use crate::failure;
use crate::output::ConsoleOutput;

/// Interval between reloads of the limit overrides file.
const OVERRIDES_RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Runs a server until it receives a stop signal.
pub fn run(args: &ServeArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (loaded, overrides) = load_valid_config(&args.settings, args.target.as_deref())?;
    Telemetry::start(&loaded.value.telemetry, output.log_colors)
        .map_err(|error| Status::from_error(&error))?;
    warn_of_ignored_limits(&overrides);
    block_on(serve(loaded, overrides))
}

/// Recovers a lost catalog from the bucket and the logs of the ingesters, without the excluded nodes.
pub fn recover_catalog(
    exclude_nodes: Vec<u64>,
    settings: &ServerConfigArgs,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    let (loaded, _) = load_valid_config(settings, None)?;
    Telemetry::start(&loaded.value.telemetry, output.log_colors)
        .map_err(|error| Status::from_error(&error))?;
    let config = loaded.value;
    let report = block_on(async {
        let failed = |error: StartError| start_error(&config.data_dir, &error);
        let system = NodeDeps::local(&config).map_err(failed)?;
        rebuild_catalog(&config, system, exclude_nodes.into_iter().collect()).await.map_err(failed)
    })?;
    output.print_json_or_text(|| json!({ "report": report }), || report.clone())
}

/// Prints the effective settings.
pub fn show(settings: &ServerConfigArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (loaded, _) = load_valid_config(settings, None)?;
    let all = || {
        let row = |setting: EffectiveSetting| json!({ "setting": setting.path, "value": setting.value, "source": source_text(&setting.origin) });
        Value::Array(loaded.effective_settings().into_iter().map(row).collect())
    };
    output.print_json_or_text(all, || settings_text(&loaded))
}

/// Loads and validates the settings and the limit overrides. The error lists all problems.
fn load_valid_config(
    settings: &ServerConfigArgs,
    target: Option<&str>,
) -> Result<(LoadedConfig<ServerConfig>, LimitOverrides), Status> {
    let sources = sources(settings, target).map_err(|error| failure::settings_error(&error))?;
    let (loaded, mut errors) = sources.load_partial::<ServerConfig>();
    let mut overrides = LimitOverrides::new(TenantLimits::default());
    if let Some(loaded) = &loaded {
        let unread: Vec<String> = errors.iter().filter_map(|error| error.path().map(str::to_owned)).collect();
        for SettingError { setting, reason } in loaded.value.problems() {
            // An unreadable setting counts as its default, which need not fit the other settings.
            let is_of_default = unread.iter().any(|path| setting == path || reason.contains(path));
            if !is_of_default {
                errors.push(loaded.setting_error(setting, reason));
            }
        }
        overrides = LimitOverrides::new(loaded.value.limits.clone());
        if let Some(path) = &loaded.value.runtime_config_file
            && let Err(error) = reload(&overrides, path, loaded.value.retention_period)
        {
            errors.extend(error.into_errors());
        }
    }
    match (loaded, ConfigError::from_errors(errors)) {
        (Some(loaded), None) => Ok((loaded, overrides)),
        (_, Some(error)) => Err(failure::settings_error(&error)),
        (None, None) => Err(Status::new(ErrorCode::Internal, "failed to read settings")),
    }
}

/// Loads the settings without checking that a server accepts them.
pub fn load_config(
    settings: &ServerConfigArgs,
    target: Option<&str>,
) -> Result<LoadedConfig<ServerConfig>, Status> {
    let loaded = sources(settings, target).and_then(ConfigSources::load);
    loaded.map_err(|error| failure::settings_error(&error))
}

fn sources(settings: &ServerConfigArgs, target: Option<&str>) -> Result<ConfigSources, ConfigError> {
    let mut sources = ConfigSources::default();
    if let Some(path) = &settings.config {
        sources = sources.with_file(path)?;
    }
    let mut flags = settings.set.clone();
    flags.extend(target.map(|target| format!("target={target}")));
    flags.extend(settings.data.iter().map(|data| format!("data_dir={data}")));
    flags.extend(settings.listen.iter().map(|listen| format!("http_listen_address={listen}")));
    sources.with_environment(process_environment()).with_flags(flags.iter().map(String::as_str))
}

fn settings_text(loaded: &LoadedConfig<ServerConfig>) -> String {
    let line = |setting: EffectiveSetting| {
        format!("{} = {}  # {}\n", setting.path, setting.value, source_text(&setting.origin))
    };
    loaded.effective_settings().into_iter().map(line).collect()
}

fn source_text(origin: &SettingSource) -> String {
    match origin {
        SettingSource::Default => "default".to_owned(),
        SettingSource::File(path) => path.display().to_string(),
        SettingSource::Environment(name) => name.clone(),
        SettingSource::Flag => "command line".to_owned(),
    }
}

/// Runs a future on a new multi-threaded runtime.
pub fn block_on<F: Future<Output = Result<R, Status>>, R>(future: F) -> Result<R, Status> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Status::new(ErrorCode::Unavailable, format!("failed to start threads: {error}")))?;
    let done = runtime.block_on(future);
    // A blocked thread, for example in a name lookup, does not delay the exit.
    runtime.shutdown_background();
    done
}

async fn serve(loaded: LoadedConfig<ServerConfig>, overrides: LimitOverrides) -> Result<(), Status> {
    let settings: Arc<str> = settings_text(&loaded).into();
    for setting in loaded.effective_settings() {
        if let (SettingSource::File(file), true) =
            (&setting.origin, SECRET_SETTINGS.contains(&setting.path.as_str()))
        {
            warn_if_readable(&setting.path, file);
        }
    }
    let config = loaded.value;
    // The port is bound first: if it is taken, no folder is created.
    let net = LocalNet::new(Clock::system());
    let listener = HttpListener::bind(&net, &config.http_listen_address)
        .await
        .map_err(|error| Status::from_error(&error))?;
    let failed = |error: StartError| start_error(&config.data_dir, &error);
    let system = NodeDeps::local(&config).map_err(failed)?;
    let clock = system.clock.clone();
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        return Err(Status::new(ErrorCode::Unavailable, "failed to register signal handlers"));
    };
    let node = tokio::select! {
        started = ServerNode::start_on(listener, &config, system, overrides.clone(), settings) => {
            started.map_err(failed)?
        }
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    eprintln!("athanor listens on http://{}", node.address());
    let delay = loop {
        tokio::select! {
            _ = terminate.recv() => break config.shutdown_delay,
            // Ctrl-C comes from a person, and no load balancer needs the delay.
            _ = interrupt.recv() => break Duration::ZERO,
            () = clock.sleep(OVERRIDES_RELOAD_INTERVAL) => {}
        }
        if let Some(path) = &config.runtime_config_file
            && let Err(error) = reload(&overrides, path, config.retention_period)
        {
            tracing::warn!(error = %Status::from_error(&error), "failed to reload limit overrides, keeping the previous ones");
        }
        warn_of_ignored_limits(&overrides);
    };
    let force_stop = node.force_stop();
    let mut stopping = std::pin::pin!(node.stop_after(delay));
    loop {
        tokio::select! {
            stopped = &mut stopping => return stopped,
            _ = terminate.recv() => force_stop.notify_waiters(),
            _ = interrupt.recv() => force_stop.notify_waiters(),
        }
    }
}

/// Converts the error of a failed start and adds the folder if the error concerns it.
fn start_error(data: &Path, error: &StartError) -> Status {
    let mut status = Status::from_error(error);
    let names_it = matches!(
        error,
        StartError::Folder(_)
            | StartError::Listener(_)
            | StartError::Setting(_)
            | StartError::Join(_)
            | StartError::Token(_)
            | StartError::Task(_)
    );
    if !names_it {
        status.message = format!("{}: {}", data.display(), status.message);
    }
    status
}

/// Reads the overrides. `retention` is the default retention of single profiles.
fn reload(overrides: &LimitOverrides, path: &Path, retention: Duration) -> Result<(), ConfigError> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let check = |limits: &TenantLimits| {
        let setting_and_reason =
            |bad: RelabelRulesError| (bad.setting.trim_start_matches("limits."), bad.error);
        let rules = find_relabel_errors(limits).into_iter().map(setting_and_reason);
        rules.chain(find_late_profile_error(limits, retention)).collect()
    };
    overrides.replace_exceptions(path, &text, check)
}

/// Warns once of each setting in the overrides file that this server does not support.
fn warn_of_ignored_limits(overrides: &LimitOverrides) {
    for setting in overrides.take_ignored_settings() {
        let way_out =
            if setting.contains("retention") { "; set `retention_period` for all tenants" } else { "" };
        tracing::warn!(setting, "ignored unsupported limit in the overrides file{way_out}");
    }
}
