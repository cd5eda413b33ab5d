//! Load by service, as one node receives it. The controller uses it to give a service more or fewer slots.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{Status, TenantId};
use athanor_cluster::handshake::PeerHandshake;
use athanor_cluster::status_codec;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::distributor_service_server;
use parking_lot::Mutex;
use tonic::{Request, Response};

/// Maximum number of counted services. Beyond that, the smaller half is dropped.
const MAX_TRACKED_SERVICES: usize = 10_000;

/// Bytes received since the start, as sent, by tenant and service.
#[derive(Default)]
pub struct ServiceLoad {
    counted: Mutex<ServiceCounters>,
}

#[derive(Default)]
struct ServiceCounters {
    tenants: BTreeMap<TenantId, BTreeMap<String, u64>>,
    services: usize,
}

impl ServiceLoad {
    /// Adds received bytes to the count of a service.
    pub fn add(&self, tenant: &TenantId, service: &str, bytes: u64) {
        let mut counted = self.counted.lock();
        if let Some(sum) = counted.tenants.get_mut(tenant).and_then(|services| services.get_mut(service)) {
            *sum += bytes;
            return;
        }
        if counted.services >= MAX_TRACKED_SERVICES {
            counted.forget_half();
        }
        counted.services += 1;
        counted.tenants.entry(tenant.clone()).or_default().insert(service.to_owned(), bytes);
    }

    /// Returns all counts by tenant and service.
    pub fn now(&self) -> BTreeMap<(TenantId, String), u64> {
        let counted = self.counted.lock();
        let all = counted.tenants.iter().flat_map(|(tenant, services)| {
            services.iter().map(move |(service, bytes)| ((tenant.clone(), service.clone()), *bytes))
        });
        all.collect()
    }
}

impl ServiceCounters {
    fn forget_half(&mut self) {
        let mut sizes: Vec<u64> = self.tenants.values().flat_map(BTreeMap::values).copied().collect();
        let middle = sizes.len() / 2;
        let median = *sizes.select_nth_unstable(middle).1;
        self.tenants.values_mut().for_each(|services| services.retain(|_, bytes| *bytes > median));
        self.tenants.retain(|_, services| !services.is_empty());
        self.services = self.tenants.values().map(BTreeMap::len).sum();
    }
}

/// gRPC service that reports the load of this node to other nodes.
#[derive(Clone)]
pub struct DistributorService {
    /// Load counters of this node.
    pub loads: Arc<ServiceLoad>,
    /// Handshake that verifies callers.
    pub handshake: Arc<PeerHandshake>,
}

#[async_trait]
impl distributor_service_server::DistributorService for DistributorService {
    async fn get_service_load(
        &self,
        request: Request<wire::GetServiceLoadRequest>,
    ) -> Result<Response<wire::GetServiceLoadResponse>, tonic::Status> {
        let checked = self.handshake.check_caller(request.get_ref().header.as_ref());
        checked.map_err(|error| status_codec::to_grpc(&Status::from_error(&error)))?;
        let encode = |((tenant, service), received_bytes): ((TenantId, String), u64)| wire::ServiceBytes {
            tenant: tenant.as_str().to_owned(),
            service,
            received_bytes,
        };
        let services = self.loads.now().into_iter().map(encode).collect();
        Ok(Response::new(wire::GetServiceLoadResponse { services }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_bounded_and_the_large_stay() {
        let loads = ServiceLoad::default();
        let tenant = TenantId::anonymous();
        for round in 0..3 {
            for service in 0..MAX_TRACKED_SERVICES {
                let bytes = if service < 10 { 1_000_000 } else { 1 + round };
                loads.add(&tenant, &format!("s{round}-{service}"), bytes);
                loads.add(&tenant, "large", 1_000);
            }
        }
        let now = loads.now();
        assert!(now.len() <= MAX_TRACKED_SERVICES);
        assert_eq!(now[&(tenant.clone(), "large".to_owned())], 3_000 * MAX_TRACKED_SERVICES as u64);
        assert!((0..3).all(|round| now.contains_key(&(tenant.clone(), format!("s{round}-3")))));
    }
}
