//! `athanor serve`, and what speaks to a server on the same folder.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::config::{ConfigError, Explained, Loaded, Origin, Sources, process_environment};
use athanor_chassis::net::LocalNet;
use athanor_chassis::{Clock, Code, Limits, Overrides, Status, Telemetry};
use athanor_ingester::{BadRules, bad_rules};
use athanor_server::http::Listener;
use athanor_server::secrets::{SECRET_SETTINGS, warn_if_readable};
use athanor_server::{BadSetting, Config, Node, StartError, System, rebuild_catalogue, request};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Catalogue, CatalogueCommand, Serve, Settings};
use crate::failure;
use crate::output::Output;

/// How often the file with exceptions from the limits is read again.
const RELOAD: Duration = Duration::from_secs(10);

/// Runs a server until it is told to stop.
pub fn run(args: &Serve, output: &Output) -> Result<(), Status> {
    let (loaded, overrides) = checked(&args.settings, args.target.as_deref())?;
    Telemetry::start(&loaded.value.telemetry, output.log_colors).map_err(|error| Status::of(&error))?;
    warn_of_left_out(&overrides);
    block_on(serve(loaded, overrides))
}

/// Puts a lost catalogue together again.
pub fn catalogue(args: Catalogue, output: &Output) -> Result<(), Status> {
    let CatalogueCommand::Rebuild { without, settings } = args.command;
    let (loaded, _) = checked(&settings, None)?;
    Telemetry::start(&loaded.value.telemetry, output.log_colors).map_err(|error| Status::of(&error))?;
    let config = loaded.value;
    let told = block_on(async {
        let failed = |error: StartError| of_folder(&config.data, &error);
        let system = System::local(&config).map_err(failed)?;
        rebuild_catalogue(&config, system, without.into_iter().collect()).await.map_err(failed)
    })?;
    output.either(|| json!({ "rebuilt": told }), || told.clone())
}

/// Prints the settings in force.
pub fn show(settings: &Settings, output: &Output) -> Result<(), Status> {
    let (loaded, _) = checked(settings, None)?;
    let all = || {
        let one = |setting: Explained| json!({ "setting": setting.path, "value": setting.value, "from": from(&setting.origin) });
        Value::Array(loaded.explain().into_iter().map(one).collect())
    };
    output.either(all, || explained(&loaded))
}

/// Has a running server cut its heads.
pub fn cut(settings: &Settings, output: &Output) -> Result<(), Status> {
    let written = administered(settings, "/cut")?;
    let number = |name: &str| written[name].as_u64().unwrap_or_default();
    let text = || match number("blocks") {
        0 => "nothing to cut\n".to_owned(),
        blocks => format!("blocks: {blocks}, samples: {}, bytes: {}\n", number("samples"), number("bytes")),
    };
    output.either(|| written.clone(), text)
}

/// Asks the server on a folder.
pub fn administered(settings: &Settings, path: &str) -> Result<Value, Status> {
    let data = load(settings, None)?.value.data;
    let answer = block_on(async move { request(&data, path).await })?;
    serde_json::from_str(&answer)
        .map_err(|error| Status::new(Code::Internal, format!("the server's answer is not JSON: {error}")))
}

/// Settings with which a server could run, and the exceptions from its limits. An error says all that is wrong.
fn checked(settings: &Settings, target: Option<&str>) -> Result<(Loaded<Config>, Overrides), Status> {
    let sources = sources(settings, target).map_err(|error| failure::settings(&error))?;
    let (loaded, mut errors) = sources.read::<Config>();
    let mut overrides = Overrides::new(Limits::default());
    if let Some(loaded) = &loaded {
        let unread: Vec<String> = errors.iter().filter_map(|error| error.path().map(str::to_owned)).collect();
        for BadSetting { setting, reason } in loaded.value.problems() {
            // What cannot be read counts as its default, which need not fit other settings.
            let is_of_default = unread.iter().any(|path| setting == path || reason.contains(path));
            if !is_of_default {
                errors.push(loaded.error_of(setting, reason));
            }
        }
        overrides = Overrides::new(loaded.value.limits.clone());
        if let Some(path) = &loaded.value.runtime_config
            && let Err(error) = reload(&overrides, path)
        {
            errors.extend(error.into_all());
        }
    }
    match (loaded, ConfigError::of_all(errors)) {
        (Some(loaded), None) => Ok((loaded, overrides)),
        (_, Some(error)) => Err(failure::settings(&error)),
        (None, None) => Err(Status::new(Code::Internal, "settings were not read")),
    }
}

fn load(settings: &Settings, target: Option<&str>) -> Result<Loaded<Config>, Status> {
    let loaded = sources(settings, target).and_then(Sources::load);
    loaded.map_err(|error| failure::settings(&error))
}

fn sources(settings: &Settings, target: Option<&str>) -> Result<Sources, ConfigError> {
    let mut sources = Sources::default();
    if let Some(path) = &settings.config {
        sources = sources.file(path)?;
    }
    let mut flags = settings.set.clone();
    flags.extend(target.map(|target| format!("target={target}")));
    flags.extend(settings.data.iter().map(|data| format!("data={data}")));
    flags.extend(settings.listen.iter().map(|listen| format!("listen={listen}")));
    sources.environment(process_environment()).flags(flags.iter().map(String::as_str))
}

fn explained(loaded: &Loaded<Config>) -> String {
    let line =
        |setting: Explained| format!("{} = {}  # {}\n", setting.path, setting.value, from(&setting.origin));
    loaded.explain().into_iter().map(line).collect()
}

fn from(origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File(path) => path.display().to_string(),
        Origin::Environment(name) => name.clone(),
        Origin::Flag => "command line".to_owned(),
    }
}

/// Runs a future on threads of its own.
pub fn block_on<F: Future<Output = Result<R, Status>>, R>(future: F) -> Result<R, Status> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Status::new(Code::Unavailable, format!("threads cannot be started: {error}")))?;
    let done = runtime.block_on(future);
    // A thread that still asks for the address of a name, say, keeps nobody.
    runtime.shutdown_background();
    done
}

async fn serve(loaded: Loaded<Config>, overrides: Overrides) -> Result<(), Status> {
    let settings: Arc<str> = explained(&loaded).into();
    for setting in loaded.explain() {
        if let (Origin::File(file), true) =
            (&setting.origin, SECRET_SETTINGS.contains(&setting.path.as_str()))
        {
            warn_if_readable(&setting.path, file);
        }
    }
    let config = loaded.value;
    // First of all: whoever finds the port taken begins no folder.
    let net = LocalNet::new(Clock::system());
    let listener = Listener::bind(&net, &config.listen).await.map_err(|error| Status::of(&error))?;
    let failed = |error: StartError| of_folder(&config.data, &error);
    let system = System::local(&config).map_err(failed)?;
    let clock = system.clock.clone();
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        return Err(Status::new(Code::Unavailable, "signals cannot be received"));
    };
    let node = tokio::select! {
        started = Node::start_on(listener, &config, system, overrides.clone(), settings) => {
            started.map_err(failed)?
        }
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    eprintln!("athanor serves at http://{}", node.address());
    let delay = loop {
        tokio::select! {
            _ = terminate.recv() => break config.shutdown_delay,
            // A person at a terminal, and no load balancer, waits for the end.
            _ = interrupt.recv() => break Duration::ZERO,
            () = clock.sleep(RELOAD) => {}
        }
        if let Some(path) = &config.runtime_config
            && let Err(error) = reload(&overrides, path)
        {
            tracing::warn!(error = %Status::of(&error), "the limits stay as they were");
        }
        warn_of_left_out(&overrides);
    };
    let haste = node.haste();
    let mut stopping = std::pin::pin!(node.stop_after(delay));
    loop {
        tokio::select! {
            stopped = &mut stopping => return stopped,
            _ = terminate.recv() => haste.notify_waiters(),
            _ = interrupt.recv() => haste.notify_waiters(),
        }
    }
}

/// Why a server does not start, with the name of its folder where that is what it is about.
fn of_folder(data: &Path, error: &StartError) -> Status {
    let mut status = Status::of(error);
    let says_so = matches!(
        error,
        StartError::Folder(_)
            | StartError::Listener(_)
            | StartError::Setting(_)
            | StartError::Join(_)
            | StartError::Token(_)
            | StartError::Task(_)
    );
    if !says_so {
        status.message = format!("{}: {}", data.display(), status.message);
    }
    status
}

fn reload(overrides: &Overrides, path: &Path) -> Result<(), ConfigError> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let check = |limits: &Limits| {
        let setting_and_reason = |bad: BadRules| (bad.setting.trim_start_matches("limits."), bad.error);
        bad_rules(limits).into_iter().map(setting_and_reason).collect()
    };
    overrides.replace(path, &text, check)
}

/// Warns of settings in the file with exceptions that have no meaning here, of each once.
fn warn_of_left_out(overrides: &Overrides) {
    for setting in overrides.take_left_out() {
        let way_out = if setting.contains("retention") { "; set `retention` for all tenants" } else { "" };
        tracing::warn!(setting, "limit of another server is ignored, it has no meaning here{way_out}");
    }
}
