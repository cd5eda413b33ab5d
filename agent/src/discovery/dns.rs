//! Discovery of targets in DNS records.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::Clock;
use athanor_profile::Labels;
use futures::StreamExt;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use parking_lot::Mutex;

use super::polling::{GroupSource, PartResult, PollingDiscoverer};
use super::{
    ADDRESS_LABEL, DiscoveryError, DiscoveryKind, DiscoveryStats, DnsDiscoverySettings, TargetGroup,
    join_host_port,
};

const NAME_LABEL: &str = "__meta_dns_name";
const SRV_TARGET_LABEL: &str = "__meta_dns_srv_record_target";
const SRV_PORT_LABEL: &str = "__meta_dns_srv_record_port";
const MX_TARGET_LABEL: &str = "__meta_dns_mx_record_target";
const NS_TARGET_LABEL: &str = "__meta_dns_ns_record_target";
const MAX_PARALLEL_LOOKUPS: usize = 8;

/// DNS servers that receive the queries.
#[derive(Clone, Debug)]
pub enum DnsServers {
    /// Servers and search list of a file like `/etc/resolv.conf`. It is read before each refresh.
    ResolvConf(PathBuf),
    /// Fixed servers and search list.
    Fixed(Box<ResolverConfig>),
}

/// Records of DNS names.
pub(super) struct DnsSource {
    settings: DnsDiscoverySettings,
    record_type: RecordType,
    servers: DnsServers,
    cached: Mutex<Option<CachedResolver>>,
}

/// Resolver with the text of the file that it was made from.
#[derive(Clone)]
struct CachedResolver {
    resolv_conf: Vec<u8>,
    resolver: Arc<SearchResolver>,
}

/// Resolver of absolute names, with the search list that completes others.
struct SearchResolver {
    resolver: TokioResolver,
    search: Vec<Name>,
    min_dots: usize,
}

/// Creates a discoverer of DNS records.
pub(super) fn dns_discoverer(
    settings: &DnsDiscoverySettings,
    servers: DnsServers,
    clock: Clock,
    stats: Arc<DiscoveryStats>,
) -> Result<PollingDiscoverer<DnsSource>, DiscoveryError> {
    let record_type = match settings.record_type.to_ascii_uppercase().as_str() {
        "SRV" => RecordType::SRV,
        "A" => RecordType::A,
        "AAAA" => RecordType::AAAA,
        "MX" => RecordType::MX,
        "NS" => RecordType::NS,
        other => {
            let reason = format!("record type {other:?} is not supported; use SRV, A, AAAA, MX or NS");
            return Err(DiscoveryError::Settings { reason });
        }
    };
    let settings = settings.clone();
    let source = DnsSource { settings, record_type, servers, cached: Mutex::default() };
    Ok(PollingDiscoverer::new(source, clock, stats))
}

#[async_trait]
impl GroupSource for DnsSource {
    fn kind(&self) -> DiscoveryKind {
        DiscoveryKind::Dns
    }

    fn refresh_interval(&self) -> Duration {
        self.settings.refresh_interval
    }

    async fn refresh(&self) -> Vec<PartResult> {
        let resolver = self.resolver().await;
        let resolver = &resolver;
        let lookups = self.settings.names.iter().map(|name| async move {
            let groups = match resolver {
                Ok(resolver) => self.look_up(resolver, name).await,
                Err(reason) => Err(self.lookup_error(name, reason.clone())),
            };
            PartResult { part: name.clone(), groups }
        });
        // The futures are boxed one by one, because a stream of unnamed ones is not known to be `Send`.
        let lookups: Vec<_> = lookups.map(futures::FutureExt::boxed).collect();
        futures::stream::iter(lookups).buffered(MAX_PARALLEL_LOOKUPS).collect().await
    }
}

impl DnsSource {
    /// Returns the resolver. A file of servers that did not change keeps the resolver and its sockets.
    async fn resolver(&self) -> Result<Arc<SearchResolver>, String> {
        let resolv_conf = match &self.servers {
            DnsServers::ResolvConf(path) => {
                let content = tokio::fs::read(path).await;
                content.map_err(|error| format!("failed to read {}: {error}", path.display()))?
            }
            DnsServers::Fixed(_) => Vec::new(),
        };
        let cached = self.cached.lock().clone();
        if let Some(cached) = cached.filter(|cached| cached.resolv_conf == resolv_conf) {
            return Ok(cached.resolver);
        }
        let (config, options) = match &self.servers {
            DnsServers::ResolvConf(path) => parse_resolv_conf(&resolv_conf)
                .map_err(|error| format!("{} is not valid: {error}", path.display()))?,
            DnsServers::Fixed(config) => ((**config).clone(), ResolverOpts::default()),
        };
        let resolver = Arc::new(SearchResolver::new(config, options).map_err(|error| error.to_string())?);
        *self.cached.lock() = Some(CachedResolver { resolv_conf, resolver: Arc::clone(&resolver) });
        Ok(resolver)
    }

    async fn look_up(
        &self,
        resolver: &SearchResolver,
        name: &str,
    ) -> Result<Vec<TargetGroup>, DiscoveryError> {
        let found = resolver.look_up(name, self.record_type).await;
        let lookup = found.map_err(|reason| self.lookup_error(name, reason))?;
        let answers = lookup.as_ref().map_or(&[][..], Lookup::answers);
        let targets = answers.iter().filter_map(|record| self.target(name, &record.data)).collect();
        Ok(vec![TargetGroup { source: name.to_owned(), targets, is_address_untrusted: true }])
    }

    /// Returns the labels of a record, None for records of other types, such as aliases.
    fn target(&self, name: &str, data: &RData) -> Option<Labels> {
        let port = self.settings.port;
        let mut labels = Labels::default();
        labels.set(NAME_LABEL, name);
        let address = match data {
            RData::SRV(record) => {
                let target = record.target.to_string();
                labels.set(SRV_TARGET_LABEL, &target);
                labels.set(SRV_PORT_LABEL, &record.port.to_string());
                join_host_port(target.trim_end_matches('.'), record.port)
            }
            RData::MX(record) => {
                let target = record.exchange.to_string();
                labels.set(MX_TARGET_LABEL, &target);
                join_host_port(target.trim_end_matches('.'), port)
            }
            RData::NS(record) => {
                let target = record.0.to_string();
                labels.set(NS_TARGET_LABEL, &target);
                join_host_port(target.trim_end_matches('.'), port)
            }
            RData::A(address) => join_host_port(&address.0.to_string(), port),
            RData::AAAA(address) => join_host_port(&address.0.to_string(), port),
            _ => return None,
        };
        labels.set(ADDRESS_LABEL, &address);
        Some(labels)
    }

    fn lookup_error(&self, name: &str, reason: String) -> DiscoveryError {
        DiscoveryError::Dns { name: name.to_owned(), record_type: self.record_type.to_string(), reason }
    }
}

impl SearchResolver {
    fn new(config: ResolverConfig, mut options: ResolverOpts) -> Result<Self, NetError> {
        // Names are looked up anew in each interval, and only in DNS.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        options.edns0 = true;
        let search = config.search().to_vec();
        let min_dots = options.ndots;
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        Ok(Self { resolver: builder.with_options(options).build()?, search, min_dots })
    }

    /// Looks up a name, completed by the search list. The first name that exists decides, even if it has no
    /// such records. None means that no name exists.
    ///
    /// # Errors
    ///
    /// No name exists, and the servers failed to answer for one of them.
    async fn look_up(&self, name: &str, record_type: RecordType) -> Result<Option<Lookup>, String> {
        let mut failure = None;
        for name in self.absolute_names(name)? {
            match self.resolver.lookup(name.clone(), record_type).await {
                Ok(lookup) => return Ok(Some(lookup)),
                Err(NetError::Dns(DnsError::NoRecordsFound(none))) => match none.response_code {
                    ResponseCode::NoError => return Ok(None),
                    ResponseCode::NXDomain => {}
                    code => failure = Some(format!("{name}: {code}")),
                },
                Err(error) => failure = Some(format!("{name}: {error}")),
            }
        }
        failure.map_or(Ok(None), Err)
    }

    /// Returns the names to look up in order, as the resolver of the system completes them.
    fn absolute_names(&self, name: &str) -> Result<Vec<Name>, String> {
        let mut absolute = Name::from_utf8(name).map_err(|error| format!("name is not valid: {error}"))?;
        if absolute.is_fqdn() {
            return Ok(vec![absolute]);
        }
        let dots = name.matches('.').count();
        let mut names = Vec::with_capacity(self.search.len() + 1);
        for domain in &self.search {
            // A name that is too long with a domain cannot exist there.
            if let Ok(mut joined) = absolute.clone().append_domain(domain) {
                joined.set_fqdn(true);
                names.push(joined);
            }
        }
        absolute.set_fqdn(true);
        names.insert(if dots >= self.min_dots { 0 } else { names.len() }, absolute);
        Ok(names)
    }
}

#[cfg(test)]
mod tests;
