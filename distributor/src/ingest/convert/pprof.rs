//! pprof, alone or in a form: its types say what it is called, and some SDKs need repairs.

use athanor_profile::normalise::{DELTA, is_in_1970};
use athanor_profile::pprof::{
    DecodeError, Inflater, Limits as PprofLimits, number_functions, rename_functions, rename_types,
    sample_types, time_nanos as stated_time, without_time,
};
use bytes::Bytes;

use super::super::form::Form;
use super::super::metric::TypeConfig;
use super::super::request::Request;
use super::{Bounds, ConvertError, Converted, Door, Made, labels};

/// The longest `sample_type_config`. SDKs send a few hundred bytes.
const CONFIG: usize = 64 << 10;

pub(super) fn form(
    request: &Request,
    content_type: &str,
    body: &Bytes,
    bounds: &Bounds,
) -> Result<Converted, ConvertError> {
    let form = Form::parse(content_type, body)?;
    if form.get("prev_profile").is_some() {
        return Err(ConvertError::PreviousProfile);
    }
    let config = match form.get("sample_type_config") {
        None => TypeConfig::default(),
        Some(json) if json.len() > CONFIG => {
            return Err(ConvertError::Config(format!("{} bytes, the limit is {CONFIG}", json.len())));
        }
        Some(json) => TypeConfig::parse(json).map_err(|error| ConvertError::Config(error.to_string()))?,
    };
    pprof(request, form.get("profile").unwrap_or(&Bytes::new()), &config, bounds)
}

pub(super) fn pprof(
    request: &Request,
    sent: &Bytes,
    config: &TypeConfig,
    bounds: &Bounds,
) -> Result<Converted, ConvertError> {
    let (door, time_nanos) = (Door::Pprof, request.from);
    if sent.is_empty() {
        let labels = labels(request, "process_cpu", &request.name.app, false);
        return Ok(Converted { door, time_nanos, made: vec![Made::only(labels, None)] });
    }
    let mut inflater = Inflater::default();
    let limits = PprofLimits { bytes: bounds.profile.bytes, ..PprofLimits::default() };
    let raw = inflater.inflate(sent, limits.bytes)?;
    let repaired = repair(raw, &limits, &request.spy, config)?;
    let types = sample_types(repaired.as_deref().unwrap_or(raw), &limits)?;
    let mut labels = labels(request, config.metric(&types), &request.name.app, false);
    let cumulative = config.cumulative(&types);
    if !cumulative.is_empty() {
        labels.push((DELTA.to_owned(), cumulative.join(",")));
    }
    let plain = repaired.as_deref().unwrap_or(raw);
    let stated = stated_time(plain)?;
    if time_nanos == 0 && stated != 0 && is_in_1970(stated) {
        // The profile counts when it arrives. What it states still tells it from others, and a duplicate from a new one.
        let client_id = Some(format!("stated time {stated}"));
        let made = Made { client_id, ..Made::only(labels, Some(without_time(plain).into())) };
        return Ok(Converted { door, time_nanos, made: vec![made] });
    }
    // Bytes that need no repair go on as they came, compressed and not copied.
    let pprof = Some(repaired.map_or_else(|| sent.clone(), Bytes::from));
    Ok(Converted { door, time_nanos, made: vec![Made::only(labels, pprof)] })
}

/// Repairs what some SDKs get wrong; nothing if there is nothing to repair.
fn repair(
    raw: &[u8],
    limits: &PprofLimits,
    spy: &str,
    config: &TypeConfig,
) -> Result<Option<Vec<u8>>, DecodeError> {
    match spy {
        "pyspy" => {
            let named = |name: &str, file: &str| (!file.starts_with('/')).then(|| with_file(name, file))?;
            rename_functions(raw, limits, named)
        }
        "rbspy" | "scripting" => rename_functions(raw, limits, with_file),
        _ if spy == "dotnetspy" || spy == "unknown" && config.names("inuse-space") => {
            let numbered = number_functions(raw)?;
            let renamed = rename_types(numbered.as_deref().unwrap_or(raw), limits, |name| {
                name.contains('-').then(|| name.replace('-', "_"))
            })?;
            Ok(renamed.or(numbered))
        }
        _ => Ok(None),
    }
}

/// Functions of scripts have short names, so people tell them apart by their file.
fn with_file(name: &str, file: &str) -> Option<String> {
    (!file.is_empty()).then(|| format!("{file} {name}"))
}
