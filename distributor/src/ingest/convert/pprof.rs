//! pprof, alone or in a form. Its types give the metric, and the output of some SDKs needs repairs.

use athanor_profile::encoding::multipart::MultipartForm;
use athanor_profile::formats::pprof::{
    DecodeError, DecodeLimits as PprofLimits, Inflater, assign_function_ids, rename_functions, rename_types,
    sample_types, strip_time, time_nanos as stated_time,
};
use athanor_profile::labeling::metric_name::SampleTypeConfig;
use athanor_profile::labeling::normalize::{DELTA_LABEL, is_in_1970};
use bytes::Bytes;

use super::super::request::IngestRequest;
use super::{ClientDialect, ConvertError, ConvertLimits, ConvertedBody, ConvertedProfile, labels};

/// Maximum length of `sample_type_config`. SDKs send a few hundred bytes.
const MAX_TYPE_CONFIG_BYTES: usize = 64 << 10;

pub(super) fn convert_form(
    request: &IngestRequest,
    content_type: &str,
    body: &Bytes,
    bounds: &ConvertLimits,
) -> Result<ConvertedBody, ConvertError> {
    let form = MultipartForm::parse(content_type, body)?;
    if form.get("prev_profile").is_some() {
        return Err(ConvertError::PreviousProfile);
    }
    let config = match form.get("sample_type_config") {
        None => SampleTypeConfig::default(),
        Some(json) if json.len() > MAX_TYPE_CONFIG_BYTES => {
            return Err(ConvertError::Config(format!(
                "{} bytes, the limit is {MAX_TYPE_CONFIG_BYTES}",
                json.len()
            )));
        }
        Some(json) => {
            SampleTypeConfig::parse(json).map_err(|error| ConvertError::Config(error.to_string()))?
        }
    };
    convert_pprof(request, form.get("profile").unwrap_or(&Bytes::new()), &config, bounds)
}

pub(super) fn convert_pprof(
    request: &IngestRequest,
    sent: &Bytes,
    config: &SampleTypeConfig,
    bounds: &ConvertLimits,
) -> Result<ConvertedBody, ConvertError> {
    let door = ClientDialect::Pprof;
    let time_nanos = request.from;
    if sent.is_empty() {
        let labels = labels(request, "process_cpu", &request.name.app, false);
        return Ok(ConvertedBody {
            door,
            time_nanos,
            made: vec![ConvertedProfile::single_profile(labels, None)],
        });
    }
    let mut inflater = Inflater::default();
    let limits = PprofLimits { bytes: bounds.profile.bytes, ..PprofLimits::default() };
    let raw = inflater.inflate(sent, limits.bytes)?;
    let repaired = repair_pprof(raw, &limits, &request.spy, config)?;
    let types = sample_types(repaired.as_deref().unwrap_or(raw), &limits)?;
    let mut labels = labels(request, config.metric_name(&types), &request.name.app, false);
    let cumulative = config.cumulative_types(&types);
    if !cumulative.is_empty() {
        labels.push((DELTA_LABEL.to_owned(), cumulative.join(",")));
    }
    let plain = repaired.as_deref().unwrap_or(raw);
    let stated = stated_time(plain)?;
    if time_nanos == 0 && stated != 0 && is_in_1970(stated) {
        // The profile gets its receive time. The stated time still distinguishes it from others, and a
        // duplicate from a new one.
        let client_id = Some(format!("stated time {stated}"));
        let made = ConvertedProfile {
            client_id,
            ..ConvertedProfile::single_profile(labels, Some(strip_time(plain).into()))
        };
        return Ok(ConvertedBody { door, time_nanos, made: vec![made] });
    }
    // A profile that needs no repair is passed on as sent, compressed and without a copy.
    let pprof = Some(repaired.map_or_else(|| sent.clone(), Bytes::from));
    Ok(ConvertedBody { door, time_nanos, made: vec![ConvertedProfile::single_profile(labels, pprof)] })
}

/// Repairs known errors of some SDKs. Returns `None` if there is nothing to repair.
fn repair_pprof(
    raw: &[u8],
    limits: &PprofLimits,
    spy: &str,
    config: &SampleTypeConfig,
) -> Result<Option<Vec<u8>>, DecodeError> {
    match spy {
        "pyspy" => {
            let named =
                |name: &str, file: &str| (!file.starts_with('/')).then(|| name_with_file(name, file))?;
            rename_functions(raw, limits, named)
        }
        "rbspy" | "scripting" => rename_functions(raw, limits, name_with_file),
        _ if spy == "dotnetspy" || spy == "unknown" && config.has_type("inuse-space") => {
            let numbered = assign_function_ids(raw)?;
            let renamed = rename_types(numbered.as_deref().unwrap_or(raw), limits, |name| {
                name.contains('-').then(|| name.replace('-', "_"))
            })?;
            Ok(renamed.or(numbered))
        }
        _ => Ok(None),
    }
}

/// Prefixes the function name with its file. Functions of scripts have short names, so the file distinguishes
/// them.
fn name_with_file(name: &str, file: &str) -> Option<String> {
    (!file.is_empty()).then(|| format!("{file} {name}"))
}
