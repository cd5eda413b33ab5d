//! Reader of a request, from its resources down to its profiles.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::error::{PROFILES_LIMIT_NAME, check_limit};
use super::layout::{SampleLayout, SampleLayoutDetector};
use super::pprof::OtlpPprofWriter;
use super::profile_header::{OtlpAttribute, OtlpProfileHeader, OtlpSampleMetric};
use super::sample::OtlpSample;
use super::tables::{OtlpDictionary, OtlpTable};
use super::value::{self, AnyValue, KeyValue};
use super::{
    OtlpError, OtlpExport, OtlpLimits, OtlpProfile, OtlpProfileContent, OtlpViolation, OtlpViolations,
};
use crate::formats::pprof::wire::{WireCursor, WireValue};

/// Attribute of a resource or a sample with the name of the profiled service.
const SERVICE_ATTRIBUTE: &[u8] = b"service.name";
const EXECUTABLE_ATTRIBUTE: &str = "process.executable.name";
const COMMENT_ATTRIBUTE: &[u8] = b"pprof.profile.comment";
/// Maximum attributes of one resource with its scope and profile. A series may have far fewer labels.
const MAX_ATTRIBUTES_PER_PROFILE: usize = 200;
const COMMENTS_LIMIT_NAME: &str = "comments of a profile";
/// Maximum bytes of a payload format's name in messages.
const MAX_FORMAT_NAME_BYTES: usize = 32;
/// Minimum bytes of a sample that counts something.
const MIN_SAMPLE_BYTES: usize = 4;

/// Converts all profiles of an uncompressed `ExportProfilesServiceRequest` to pprof.
pub fn read(raw: &[u8], bounds: &OtlpLimits) -> Result<OtlpExport, OtlpError> {
    read_as(None, raw, bounds)
}

/// Reads the output of [`from_json`](super::from_json). JSON has field names, so the sample layout is known.
pub fn read_converted_json(raw: &[u8], bounds: &OtlpLimits) -> Result<OtlpExport, OtlpError> {
    read_as(Some(SampleLayout::New), raw, bounds)
}

fn read_as(known: Option<SampleLayout>, raw: &[u8], bounds: &OtlpLimits) -> Result<OtlpExport, OtlpError> {
    let bounds = &bounds.for_request(raw.len());
    check_limit("bytes in a request", raw.len(), u32::MAX as usize)?;
    let mut tables = OtlpDictionary::new(raw);
    let mut request = WireCursor::new(raw);
    let mut has_resources = false;
    while !request.is_done() {
        match request.field("the request")? {
            (1, WireValue::Bytes(..)) => has_resources = true,
            (2, WireValue::Bytes(start, end)) => {
                tables.index_dictionary(WireCursor::new(raw).range(start, end))?
            }
            _ => {}
        }
    }
    if !has_resources {
        return Err(OtlpError::NoResources);
    }
    let (layout, is_told) = layout(known, &tables, WireCursor::new(raw), bounds)?;
    let mut violations =
        OtlpViolations::from([(OtlpViolation::OldLayout, u64::from(layout == SampleLayout::Old))]);
    tables.check_zero_entries(&mut violations);
    let services = service_attributes(&tables)?;
    let mut writer = OtlpPprofWriter::new(&tables, bounds);
    writer.violations = violations;
    let mut walk = OtlpExportReader {
        tables: &tables,
        bounds,
        layout,
        is_new: is_told && layout == SampleLayout::New,
        services,
        writer,
        sample: OtlpSample::new(bounds.profile),
        profiles: Vec::new(),
    };
    let mut request = WireCursor::new(raw);
    while let Some(resource) = next(&mut request, 1, "the request", &tables)? {
        walk.resource(resource)?;
    }
    Ok(OtlpExport { violations: walk.writer.violations, profiles: walk.profiles })
}

/// Returns the next message with the given field number.
fn next<'a>(
    cursor: &mut WireCursor<'a>,
    field: u64,
    what: &'static str,
    tables: &OtlpDictionary<'a>,
) -> Result<Option<WireCursor<'a>>, OtlpError> {
    while !cursor.is_done() {
        if let (found, WireValue::Bytes(start, end)) = cursor.field(what)?
            && found == field
        {
            return Ok(Some(tables.cursor(start, end)));
        }
    }
    Ok(None)
}

/// Returns the sample layout of a request, and whether a sample determines it. Refuses requests with too many
/// profiles. If there is no dictionary, it also refuses requests with samples or without profiles.
fn layout<'a>(
    mut found: Option<SampleLayout>,
    tables: &OtlpDictionary<'a>,
    mut request: WireCursor<'a>,
    bounds: &OtlpLimits,
) -> Result<(SampleLayout, bool), OtlpError> {
    let mut search = SampleLayoutDetector::new(tables);
    let mut count = 0;
    while let Some(mut resource) = next(&mut request, 1, "the request", tables)? {
        while let Some(mut scope) = next(&mut resource, 2, "a resource", tables)? {
            while let Some(mut profile) = next(&mut scope, 2, "a scope", tables)? {
                count += 1;
                while (found.is_none() || tables.is_empty())
                    && let Some(sample) = next(&mut profile, 2, "a profile", tables)?
                {
                    if tables.is_empty() {
                        return Err(OtlpError::NoDictionary);
                    }
                    found = search.inspect_sample(sample)?;
                }
            }
        }
    }
    if count > bounds.profiles {
        let way_out = " (distributor.max_profiles_per_request): send smaller batches";
        return Err(OtlpError::OverLimit {
            what: PROFILES_LIMIT_NAME,
            seen: count,
            limit: bounds.profiles,
            way_out,
        });
    }
    if count == 0 && tables.is_empty() {
        return Err(OtlpError::NoDictionary);
    }
    Ok((found.unwrap_or_else(|| search.conclude()), found.is_some()))
}

/// Returns the names of services by index of the attribute that gives them.
fn service_attributes<'a>(tables: &OtlpDictionary<'a>) -> Result<BTreeMap<u64, &'a [u8]>, OtlpError> {
    let mut services = BTreeMap::new();
    for index in 0..tables.len(OtlpTable::Attributes) as u64 {
        let Some(entry) = tables.entry(OtlpTable::Attributes, index, "the dictionary")? else { continue };
        // An unreadable entry only affects samples that refer to it.
        let Ok(OtlpAttribute { pair: KeyValue { key: SERVICE_ATTRIBUTE, value }, .. }) =
            OtlpAttribute::read(entry, tables)
        else {
            continue;
        };
        let name = match value {
            AnyValue::Text(name) => name,
            AnyValue::Named(index) => tables.text(index, "the name of a service").unwrap_or_default(),
            _ => continue,
        };
        if !name.is_empty() {
            services.insert(index, name);
        }
    }
    Ok(services)
}

/// Labels of a series. The first one with a name wins.
type OtlpLabelPairs = Vec<(String, String)>;

/// Returns the memory that labels take.
fn size<'l>(labels: impl IntoIterator<Item = &'l (String, String)>) -> usize {
    let of_one = |(name, value): &(String, String)| name.len() + value.len() + size_of::<(String, String)>();
    labels.into_iter().map(of_one).sum()
}

/// Sample with its service.
struct ServiceSample {
    /// Index of its service.
    place: u32,
    /// Number of the sample in its profile, from 1.
    number: u32,
    start: u32,
    end: u32,
}

struct OtlpExportReader<'t, 'a> {
    tables: &'t OtlpDictionary<'a>,
    bounds: &'t OtlpLimits,
    layout: SampleLayout,
    /// At least one sample has the new layout.
    is_new: bool,
    /// Names of services, by index of the attribute that gives them.
    services: BTreeMap<u64, &'a [u8]>,
    writer: OtlpPprofWriter<'t, 'a>,
    sample: OtlpSample,
    profiles: Vec<Result<Vec<OtlpProfile>, OtlpError>>,
}

impl<'a> OtlpExportReader<'_, 'a> {
    fn resource(&mut self, resource: WireCursor<'a>) -> Result<(), OtlpError> {
        let mut fields = resource;
        let mut labels = None;
        while let Some(scope) = next(&mut fields, 2, "a resource", self.tables)? {
            self.scope(scope, resource, &mut labels)?;
        }
        Ok(())
    }

    /// Reads the profiles of a scope. Labels are built on the first profile, because a request may have many
    /// more resources and scopes than profiles.
    fn scope(
        &mut self,
        scope: WireCursor<'a>,
        resource: WireCursor<'a>,
        labels: &mut Option<Result<OtlpLabelPairs, OtlpError>>,
    ) -> Result<(), OtlpError> {
        let mut fields = scope;
        let mut own = None;
        while let Some(profile) = next(&mut fields, 2, "a scope", self.tables)? {
            let labels = match &own {
                Some(own) => own,
                None => {
                    let of_resource = labels
                        .get_or_insert_with(|| self.attributes_of(resource, 1, Ok(OtlpLabelPairs::new())));
                    let copied = of_resource.as_ref().map_err(OtlpError::clone).and_then(|labels| {
                        self.writer.spend(size(labels))?;
                        Ok(labels.clone())
                    });
                    let all = self.attributes_of(scope, 3, copied);
                    own.insert(all)
                }
            };
            let made = match labels {
                Ok(labels) => self.profile(profile, labels),
                Err(error) => Err(error.clone()),
            };
            if made.is_err() {
                self.writer.clear();
            }
            self.profiles.push(made);
        }
        Ok(())
    }

    /// Adds the attributes of a resource or a scope from its field 1.
    fn attributes_of(
        &mut self,
        mut of: WireCursor<'a>,
        field: u64,
        mut labels: Result<OtlpLabelPairs, OtlpError>,
    ) -> Result<OtlpLabelPairs, OtlpError> {
        while let Some(described) = next(&mut of, 1, "a resource or a scope", self.tables)? {
            labels = labels.and_then(|labels| self.labels(described, field, labels));
        }
        labels
    }

    /// Adds the attributes of a resource or a scope, from its field `field`, as labels.
    fn labels(
        &mut self,
        mut of: WireCursor<'a>,
        field: u64,
        mut labels: OtlpLabelPairs,
    ) -> Result<OtlpLabelPairs, OtlpError> {
        while !of.is_done() {
            match of.field("a resource or a scope")? {
                (found, WireValue::Bytes(start, end)) if found == field => {
                    let pair = KeyValue::read(self.tables.cursor(start, end), self.tables)?;
                    self.add_label(&pair, &[], &mut labels)?;
                }
                // The field after the attributes is the number that the sender dropped.
                (found, WireValue::Varint(count)) if found == field + 1 => {
                    self.writer.violations.add(OtlpViolation::DroppedAttribute, count);
                }
                _ => {}
            }
        }
        Ok(labels)
    }

    /// Adds a label, unless `known` or `labels` has one with that name.
    fn add_label(
        &mut self,
        pair: &KeyValue<'a>,
        known: &[(String, String)],
        labels: &mut OtlpLabelPairs,
    ) -> Result<(), OtlpError> {
        let Some(value) = pair.value.to_label(self.tables)? else { return Ok(()) };
        value::check_text_length(pair.key.len())?;
        value::check_text_length(value.len())?;
        // A few bytes of a request may refer to a long text, and each resource, scope and profile to the same
        // one.
        self.writer.spend(pair.key.len() + value.len())?;
        let text =
            |text: &[u8], what| String::from_utf8(text.to_vec()).map_err(|_| OtlpError::NotUtf8 { what });
        let name = text(pair.key, "the key of an attribute")?;
        let value = text(&value, "the value of an attribute")?;
        if value.is_empty() {
            return Ok(());
        }
        if name.is_empty() || known.iter().chain(&*labels).any(|(known, _)| *known == name) {
            self.writer.violations.add(OtlpViolation::UnusableAttribute, 1);
            return Ok(());
        }
        check_limit("attributes of a resource", known.len() + labels.len() + 1, MAX_ATTRIBUTES_PER_PROFILE)?;
        labels.push((name, value));
        Ok(())
    }

    /// Converts one profile to one pprof per service of its samples.
    fn profile(
        &mut self,
        profile: WireCursor<'a>,
        labels: &OtlpLabelPairs,
    ) -> Result<Vec<OtlpProfile>, OtlpError> {
        // If the budget is used up, no further profile is read.
        self.writer.check()?;
        let service = service_of(labels);
        let mut head = OtlpProfileHeader::read(profile, self.is_new, self.tables)?;
        let mut own = OtlpLabelPairs::new();
        let mut comments = Vec::new();
        self.attributes(&head, labels, &mut own, &mut comments)?;
        let labels = [labels, &own];
        if !head.has_samples {
            return self.without_samples(&head, labels, service).map(|made| vec![made]);
        }
        self.writer.violations.add(OtlpViolation::IgnoredPayload, u64::from(head.payload.is_some()));
        let counted = head.sample_metric(self.tables)?;
        head.fill_defaults(&mut self.writer.violations);

        let mut made = Vec::new();
        let mut finish = |walk: &mut Self, service: String| {
            let pprof =
                walk.writer.finish(&head, &counted, &comments.iter().map(Cow::as_ref).collect::<Vec<_>>())?;
            let metric = Some(String::from_utf8(counted.metric.to_vec()));
            let metric =
                metric.transpose().map_err(|_| OtlpError::NotUtf8 { what: "the type of the period" })?;
            let labels = walk.series(metric, service, labels)?;
            made.push(OtlpProfile {
                labels,
                id: head.id(),
                time_nanos: head.time as i64,
                content: OtlpProfileContent::Pprof(pprof),
            });
            Ok::<_, OtlpError>(())
        };
        if self.services.is_empty() {
            let mut fields = profile;
            let mut number = 0;
            while let Some(sample) = next(&mut fields, 2, "a profile", self.tables)? {
                number += 1;
                self.sample(sample, number, &head, &counted)?;
            }
            finish(self, service)?;
            return Ok(made);
        }
        let (services, samples) = self.by_service(profile, service)?;
        for of_one in samples.chunk_by(|left, right| left.place == right.place) {
            for sample in of_one {
                let cursor = self.tables.cursor(sample.start as usize, sample.end as usize);
                self.sample(cursor, sample.number as usize, &head, &counted)?;
            }
            let service = of_one.first().and_then(|sample| services.get(sample.place as usize));
            finish(self, service.cloned().unwrap_or_default())?;
        }
        Ok(made)
    }

    /// Returns a profile that has an original payload or nothing.
    fn without_samples(
        &mut self,
        head: &OtlpProfileHeader<'a>,
        labels: [&OtlpLabelPairs; 2],
        service: String,
    ) -> Result<OtlpProfile, OtlpError> {
        let content = match head.payload {
            None => OtlpProfileContent::Nothing,
            Some((start, end)) => {
                let format = &head.payload_format[..head.payload_format.len().min(MAX_FORMAT_NAME_BYTES)];
                let format = String::from_utf8_lossy(format).into_owned();
                OtlpProfileContent::Payload { format, bytes: start..end }
            }
        };
        let labels = self.series(None, service, labels)?;
        Ok(OtlpProfile { labels, id: head.id(), time_nanos: head.time as i64, content })
    }

    /// Reads the attributes of the profile itself: comments, and labels that the resource's `known` ones
    /// lack.
    fn attributes(
        &mut self,
        head: &OtlpProfileHeader<'a>,
        known: &OtlpLabelPairs,
        labels: &mut OtlpLabelPairs,
        comments: &mut Vec<Cow<'a, [u8]>>,
    ) -> Result<(), OtlpError> {
        check_limit(COMMENTS_LIMIT_NAME, head.comments.len(), MAX_ATTRIBUTES_PER_PROFILE)?;
        for &index in &head.comments {
            comments.push(Cow::Borrowed(self.tables.text(index, "a comment")?));
        }
        for &index in &head.attributes {
            let Ok(Some(entry)) = self.tables.entry(OtlpTable::Attributes, index, "a profile") else {
                self.writer.violations.add(OtlpViolation::DanglingAttribute, 1);
                continue;
            };
            let OtlpAttribute { pair, .. } = OtlpAttribute::read(entry, self.tables)?;
            match pair {
                KeyValue { key: COMMENT_ATTRIBUTE, value: AnyValue::List(list) } => {
                    let mut list = list;
                    while let Some(comment) = next(&mut list, 1, "a value", self.tables)? {
                        check_limit(COMMENTS_LIMIT_NAME, comments.len() + 1, MAX_ATTRIBUTES_PER_PROFILE)?;
                        comments.push(AnyValue::read(comment, self.tables)?.to_text(self.tables)?);
                    }
                }
                KeyValue { key: COMMENT_ATTRIBUTE, value } => comments.push(value.to_text(self.tables)?),
                pair => self.add_label(&pair, known, labels)?,
            }
        }
        Ok(())
    }

    /// Returns all labels of a series.
    fn series(
        &mut self,
        metric: Option<String>,
        service: String,
        labels: [&OtlpLabelPairs; 2],
    ) -> Result<OtlpLabelPairs, OtlpError> {
        let labels = || labels.into_iter().flatten();
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut all: OtlpLabelPairs =
            metric.map(|metric| ("__name__".to_owned(), metric)).into_iter().collect();
        all.extend([own("service_name", &service), own("__otel__", "true"), own("__delta__", "false")]);
        let ours = all.len();
        if labels().all(|(name, _)| name.as_bytes() != SERVICE_ATTRIBUTE) && service_of(labels()) != service {
            all.push(own("service.name", &service));
        }
        self.writer.spend(size(&all) + size(labels()))?;
        let others =
            labels().filter(|(name, _)| name != "__name__" && all[..ours].iter().all(|(own, _)| own != name));
        let others: Vec<_> = others.cloned().collect();
        all.extend(others);
        Ok(all)
    }

    /// Returns the services of a profile, and its samples sorted by service. Each sample has the index of its
    /// service.
    fn by_service(
        &self,
        mut profile: WireCursor<'a>,
        resource: String,
    ) -> Result<(Vec<String>, Vec<ServiceSample>), OtlpError> {
        let mut places: BTreeMap<Vec<u8>, u32> = [(resource.clone().into_bytes(), 0)].into();
        let mut names = vec![resource];
        let mut samples = Vec::new();
        let mut sample = OtlpSample::new(self.bounds.profile);
        while let Some(cursor) = next(&mut profile, 2, "a profile", self.tables)? {
            let number = samples.len() + 1;
            check_limit("samples in a profile", number, self.bounds.profile / MIN_SAMPLE_BYTES)?;
            sample.read(cursor, self.layout, self.tables)?;
            let service = sample.attributes.iter().find_map(|index| self.services.get(index));
            let place = match service.map(|name| (name, places.get(*name))) {
                None => 0,
                Some((_, Some(&place))) => place,
                Some((name, None)) => {
                    let place = names.len() as u32;
                    value::check_text_length(name.len())?;
                    check_limit("services in a profile", names.len() + 1, self.bounds.profiles)?;
                    let text = String::from_utf8(name.to_vec());
                    names.push(text.map_err(|_| OtlpError::NotUtf8 { what: "the name of a service" })?);
                    places.insert(name.to_vec(), place);
                    place
                }
            };
            let start = cursor.position() as u32;
            samples.push(ServiceSample {
                place,
                number: number as u32,
                start,
                end: start + cursor.remaining().len() as u32,
            });
        }
        samples.sort_by_key(|sample| sample.place);
        Ok((names, samples))
    }

    fn sample(
        &mut self,
        cursor: WireCursor<'a>,
        number: usize,
        head: &OtlpProfileHeader<'a>,
        counted: &OtlpSampleMetric<'a>,
    ) -> Result<(), OtlpError> {
        self.sample.read(cursor, self.layout, self.tables)?;
        let value = counts(&self.sample, number, counted, &mut self.writer.violations)?;
        times(&self.sample, head, &mut self.writer.violations);
        self.writer.sample(&self.sample, value, |attribute| self.services.contains_key(&attribute))
    }
}

/// Returns the value of a sample.
fn counts(
    sample: &OtlpSample,
    number: usize,
    counted: &OtlpSampleMetric<'_>,
    violations: &mut OtlpViolations,
) -> Result<i64, OtlpError> {
    let latest = if counted.snapshots && sample.values > 1 { sample.latest() } else { None };
    violations.add(OtlpViolation::Snapshot, u64::from(latest.is_some()));
    let sum = || latest.or(sample.sum).ok_or(OtlpError::SumOverflow { sample: number });
    let value = match (sample.values, sample.times()) {
        (0, times) if times > 0 => times as i64,
        (1, _) => sum()?,
        (values, times) if values > 0 && (values == times || counted.sums) => sum()?,
        (values, times) => return Err(OtlpError::Values { sample: number, values, times }),
    };
    let period = counted.factor;
    value.checked_mul(period).ok_or(OtlpError::Overflow { sample: number, value, period })
}

/// Counts timestamps that are out of order or out of range.
fn times(sample: &OtlpSample, head: &OtlpProfileHeader<'_>, violations: &mut OtlpViolations) {
    let mut before = 0;
    let end = if head.time == 0 { u64::MAX } else { head.time.saturating_add(head.duration) };
    for time in sample.each_time() {
        violations.add(OtlpViolation::UnorderedTime, u64::from(time <= before));
        violations.add(OtlpViolation::TimeOutOfRange, u64::from(time < head.time || time >= end));
        before = time;
    }
}

/// Returns the service's name from the resource's attributes, with `unknown_service` as the fallback.
fn service_of<'l>(labels: impl IntoIterator<Item = &'l (String, String)> + Clone) -> String {
    let of = |name: &str| {
        let found = labels.clone().into_iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    match (of("service.name"), of(EXECUTABLE_ATTRIBUTE)) {
        (Some(service), _) => service.to_owned(),
        (None, Some(executable)) => format!("unknown_service:{executable}"),
        (None, None) => "unknown_service".to_owned(),
    }
}
