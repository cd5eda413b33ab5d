//! Admission of requests: a limit on bytes in flight in total, and a rate limit per tenant.
//!
//! The limit is no `MemoryBudget`: a request passes alone whatever its size, and one tenant among others gets
//! half.
//!
//! A rate limit counts decompressed bytes. Their number is known only after decoding. A request therefore
//! pays for its bytes as sent at admission, and for the rest once it is stored. The second charge may leave a
//! debt, and later requests wait until the debt is paid.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::requests::tenant_shares::TenantShares;
use athanor_chassis::{Clock, ErrorCode, Random, Status, TenantId, TenantLimits};
use parking_lot::Mutex;

/// Retry delay, before jitter, if too many bytes are in flight.
const OVERLOAD_RETRY_AFTER: Duration = Duration::from_secs(2);
/// Maximum number of tenants with a token bucket. Past that, buckets idle for a minute are evicted: they are
/// full, as new buckets are.
const MAX_RATE_BUCKETS: usize = 100_000;

/// Counters of bytes in flight and of tenant rates.
pub(crate) struct RequestAdmission {
    under_way: Arc<AtomicU64>,
    limit: u64,
    shares: Arc<TenantShares>,
    buckets: Mutex<BTreeMap<TenantId, TokenBucket>>,
    clock: Clock,
    random: Random,
}

/// Reservation of bytes in flight. Dropping the guard releases them.
#[must_use = "dropping it is leaving"]
pub(crate) struct AdmissionGuard {
    under_way: Arc<AtomicU64>,
    bytes: u64,
    shares: Arc<TenantShares>,
    tenant: TenantId,
    /// Bytes that count toward the tenant's share.
    shared_bytes: u64,
}

/// Token bucket in which one token is one byte.
#[derive(Clone, Copy)]
struct TokenBucket {
    tokens: f64,
    /// Monotonic time of `tokens`.
    at: Duration,
}

/// Limit of one tenant, in bytes.
#[derive(Clone, Copy)]
struct TenantRateLimit {
    per_second: f64,
    burst: f64,
}

impl RequestAdmission {
    pub(crate) fn new(limit: u64, clock: Clock, random: Random) -> Self {
        let shares = Arc::new(TenantShares::new(limit));
        RequestAdmission {
            under_way: Arc::default(),
            limit,
            shares,
            buckets: Mutex::default(),
            clock,
            random,
        }
    }

    pub(crate) fn admit(
        &self,
        tenant: &TenantId,
        bytes: u64,
        limits: &TenantLimits,
    ) -> Result<AdmissionGuard, Status> {
        let admitted = self.reserve_in_flight(tenant, bytes)?;
        if let Some(rate) = TenantRateLimit::from_limits(limits) {
            self.take_tokens(tenant, bytes, rate)?;
        }
        Ok(admitted)
    }

    fn reserve_in_flight(&self, tenant: &TenantId, bytes: u64) -> Result<AdmissionGuard, Status> {
        let mut admitted = AdmissionGuard {
            under_way: Arc::clone(&self.under_way),
            bytes: 0,
            shares: Arc::clone(&self.shares),
            tenant: tenant.clone(),
            shared_bytes: 0,
        };
        self.reserve_more(&mut admitted, bytes)?;
        Ok(admitted)
    }

    /// Reserves more bytes in flight. If nothing else is in flight, a request of any size passes: its
    /// tenant's limit already bounds it.
    pub(crate) fn reserve_more(&self, admitted: &mut AdmissionGuard, bytes: u64) -> Result<(), Status> {
        self.reserve_tenant_share(admitted, bytes)?;
        let before = self.under_way.fetch_add(bytes, Ordering::Relaxed);
        let own = admitted.bytes;
        admitted.bytes = own.saturating_add(bytes);
        if before > own && before.saturating_add(bytes) > self.limit {
            let message = format!(
                "requests in flight hold {before} bytes, the limit is {} (distributor.max_inflight_bytes); retry",
                self.limit
            );
            let status = Status::new(ErrorCode::Exhausted, message).with_reason("inflight_limit");
            return Err(status.with_retry_after(self.random.jitter(OVERLOAD_RETRY_AFTER)));
        }
        Ok(())
    }

    /// Refuses a request before its body is read, if the tenant's rate limit is exceeded. Takes no tokens.
    pub(crate) fn check_rate(
        &self,
        tenant: &TenantId,
        length: Option<u64>,
        limits: &TenantLimits,
    ) -> Result<(), Status> {
        let Some(rate) = TenantRateLimit::from_limits(limits) else { return Ok(()) };
        let now = self.clock.monotonic();
        let buckets = self.buckets.lock();
        let Some(bucket) = buckets.get(tenant) else { return Ok(()) };
        let tokens = bucket.refill(now, rate).tokens;
        // A request of unknown length has at least one byte.
        if tokens >= rate.tokens_needed(length.unwrap_or(1)) {
            return Ok(());
        }
        Err(self.rate_limit_status(length, tokens, rate))
    }

    /// Charges bytes that an admitted request produced after admission.
    pub(crate) fn charge(&self, tenant: &TenantId, bytes: u64, limits: &TenantLimits) {
        let Some(rate) = TenantRateLimit::from_limits(limits) else { return };
        let now = self.clock.monotonic();
        let mut buckets = self.buckets.lock();
        // A missing bucket was evicted as idle. An idle bucket counts as full.
        if let Some(bucket) = buckets.get_mut(tenant) {
            *bucket = bucket.refill(now, rate);
            bucket.tokens -= bytes as f64;
        }
    }

    /// Counts bytes toward the tenant's share. If the tenant has no other bytes in flight, the request always
    /// passes.
    fn reserve_tenant_share(&self, admitted: &mut AdmissionGuard, bytes: u64) -> Result<(), Status> {
        let tenant = std::slice::from_ref(&admitted.tenant);
        if let Err(exceeded) = self.shares.reserve(tenant, bytes) {
            if exceeded.held > admitted.shared_bytes {
                let message = format!(
                    "requests in flight of tenant {} hold {} bytes and this request needs {bytes} more, the limit of one tenant \
                     among others is {}, half of distributor.max_inflight_bytes; retry",
                    exceeded.tenant, exceeded.held, exceeded.share
                );
                let status = Status::new(ErrorCode::Exhausted, message).with_reason("inflight_limit");
                return Err(status.with_retry_after(self.random.jitter(OVERLOAD_RETRY_AFTER)));
            }
            self.shares.reserve_unchecked(tenant, bytes);
        }
        admitted.shared_bytes = admitted.shared_bytes.saturating_add(bytes);
        Ok(())
    }

    /// Takes tokens for a request. A request over the burst size passes when the bucket is full and leaves a
    /// debt.
    fn take_tokens(&self, tenant: &TenantId, bytes: u64, rate: TenantRateLimit) -> Result<(), Status> {
        let now = self.clock.monotonic();
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MAX_RATE_BUCKETS && !buckets.contains_key(tenant) {
            // Without `ingestion_burst_size` one second refills a bucket; a minute is long for any burst.
            buckets.retain(|_, bucket| now.saturating_sub(bucket.at) < Duration::from_secs(60));
        }
        if buckets.len() >= MAX_RATE_BUCKETS && !buckets.contains_key(tenant) {
            let message = format!("rates of {MAX_RATE_BUCKETS} tenants are being tracked, the limit; retry");
            let status = Status::new(ErrorCode::Exhausted, message).with_reason("rate_limited");
            return Err(status.with_retry_after(self.random.jitter(OVERLOAD_RETRY_AFTER)));
        }
        let bucket = buckets.entry(tenant.clone()).or_insert(TokenBucket { tokens: rate.burst, at: now });
        *bucket = bucket.refill(now, rate);
        if bucket.tokens >= rate.tokens_needed(bytes) {
            bucket.tokens -= bytes as f64;
            return Ok(());
        }
        Err(self.rate_limit_status(Some(bytes), bucket.tokens, rate))
    }

    fn rate_limit_status(&self, length: Option<u64>, tokens: f64, rate: TenantRateLimit) -> Status {
        let needed = rate.tokens_needed(length.unwrap_or(1));
        let TenantRateLimit { per_second, burst } = rate;
        let wait = Duration::from_secs_f64(((needed - tokens) / per_second.max(1.0)).clamp(0.001, 3600.0));
        let size = length.map_or_else(|| "unknown length".to_owned(), |bytes| format!("{bytes} bytes"));
        let message = format!(
            "request of {size} exceeds the ingestion rate limit: {:.0} bytes are left of a burst of {burst} (limits.ingestion_burst_size), refilled with {per_second} per second (limits.ingestion_rate), counted decompressed; retry after the delay in the response, profile less often, or raise the limits",
            tokens.max(0.0),
        );
        let status = Status::new(ErrorCode::Exhausted, message).with_reason("rate_limited");
        status.with_retry_after(wait + self.random.jitter(Duration::from_secs(1)))
    }
}

impl TenantRateLimit {
    fn from_limits(limits: &TenantLimits) -> Option<Self> {
        let rate = limits.ingestion_rate?;
        let burst = limits.ingestion_burst_size.unwrap_or(rate);
        Some(Self { per_second: rate.get() as f64, burst: burst.get() as f64 })
    }

    /// Returns the tokens that the bucket must hold before a request of `bytes` bytes passes.
    fn tokens_needed(self, bytes: u64) -> f64 {
        (bytes as f64).min(self.burst)
    }
}

impl TokenBucket {
    fn refill(self, now: Duration, rate: TenantRateLimit) -> Self {
        let came = now.saturating_sub(self.at).as_secs_f64() * rate.per_second;
        Self { tokens: (self.tokens + came).min(rate.burst), at: now }
    }
}

impl Drop for AdmissionGuard {
    fn drop(&mut self) {
        self.under_way.fetch_sub(self.bytes, Ordering::Relaxed);
        self.shares.release(std::slice::from_ref(&self.tenant), self.shared_bytes);
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::{ByteSize, Timestamp};

    use super::*;

    fn admission(limit: u64) -> (RequestAdmission, athanor_chassis::time::clock::ManualClock) {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        (RequestAdmission::new(limit, clock, Random::from_seed(1)), hand)
    }

    #[test]
    fn so_many_bytes_are_under_way_and_no_more() {
        let (admission, _) = admission(100);
        let limits = TenantLimits::default();
        let tenant = TenantId::anonymous();
        let first = admission.admit(&tenant, 60, &limits).ok().unwrap();
        let refused = admission.admit(&tenant, 41, &limits).err().unwrap();
        assert_eq!(refused.code, ErrorCode::Exhausted);
        assert!(refused.retry_after.unwrap() >= OVERLOAD_RETRY_AFTER / 2);
        assert_eq!(
            refused.message,
            "requests in flight hold 60 bytes, the limit is 100 (distributor.max_inflight_bytes); retry"
        );
        drop(admission.admit(&tenant, 40, &limits).ok().unwrap());
        drop(first);
        let mut single = admission.admit(&tenant, 1000, &limits).ok().unwrap();
        assert!(admission.reserve_more(&mut single, 1000).is_ok(), "and so it does with what comes of it");
        drop(single);
        assert_eq!(admission.under_way.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_comes_of_a_request_takes_room_too() {
        let (admission, _) = admission(100);
        let admit =
            |bytes| admission.admit(&TenantId::anonymous(), bytes, &TenantLimits::default()).ok().unwrap();
        let (mut first, mut second) = (admit(10), admit(10));
        admission.reserve_more(&mut first, 80).unwrap();
        let refused = admission.reserve_more(&mut second, 1).unwrap_err();
        assert_eq!((refused.code, refused.retry_after.is_some()), (ErrorCode::Exhausted, true));
        drop(second);
        assert_eq!(admission.under_way.load(Ordering::Relaxed), 90);
        drop(first);
        assert_eq!(admission.under_way.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn tenant_leaves_half_of_the_bytes_to_others() {
        let (admission, _) = admission(100);
        let admit =
            |tenant: &str, bytes| admission.admit(&tenant.parse().unwrap(), bytes, &TenantLimits::default());
        let alone = admit("heavy", 90).ok().unwrap();
        let other = admit("light", 10).ok().unwrap();
        drop((alone, other));
        let half = admit("heavy", 50).ok().unwrap();
        let refused = admit("heavy", 1).err().unwrap();
        assert_eq!(refused.code, ErrorCode::Exhausted);
        assert!(
            refused.message.contains("tenant heavy hold 50 bytes") && refused.message.contains("is 50,"),
            "{refused}"
        );
        let other = admit("light", 50).ok().unwrap();
        drop((half, other));
        assert!(admit("heavy", 1000).is_ok(), "one request is let in, however large");
    }

    #[test]
    fn a_tenant_sends_at_its_rate() {
        let (admission, hand) = admission(1 << 40);
        let rate = Some(ByteSize::bytes(100));
        let burst = Some(ByteSize::bytes(200));
        let limits =
            TenantLimits { ingestion_rate: rate, ingestion_burst_size: burst, ..TenantLimits::default() };
        let ask = |bytes| admission.admit(&TenantId::anonymous(), bytes, &limits).map(drop);
        ask(150).unwrap();
        let refused = ask(100).unwrap_err();
        let wait = refused.retry_after.unwrap();
        let said = refused.message.as_str();
        assert!(
            said.starts_with(
                "request of 100 bytes exceeds the ingestion rate limit: 50 bytes are left of a burst of 200"
            ),
            "{said}"
        );
        assert!(said.contains("limits.ingestion_burst_size") && said.contains("limits.ingestion_rate"));
        assert!((Duration::from_secs(1)..=Duration::from_millis(1500)).contains(&wait), "{wait:?}");
        assert!(admission.admit(&"other".parse().unwrap(), 100, &limits).is_ok());
        hand.advance(Duration::from_millis(500));
        ask(100).unwrap();
        // A debt: more than the burst passes only when the bucket is full.
        hand.advance(Duration::from_secs(2));
        ask(400).unwrap();
        hand.advance(Duration::from_secs(3));
        assert!(ask(101).is_err());
        ask(100).unwrap();
    }
    #[test]
    fn decompressed_bytes_are_charged_and_a_debt_refuses_before_the_body() {
        let (admission, hand) = admission(1 << 40);
        let rate = Some(ByteSize::bytes(100));
        let limits = TenantLimits { ingestion_rate: rate, ..TenantLimits::default() };
        let tenant = TenantId::anonymous();
        let check = |length| admission.check_rate(&tenant, length, &limits);
        assert_eq!(check(Some(1_000_000)), Ok(()), "a full bucket lets any request pass");
        drop(admission.admit(&tenant, 10, &limits).ok().unwrap());
        assert_eq!((check(None), check(Some(90))), (Ok(()), Ok(())));
        assert!(check(Some(91)).is_err());
        admission.charge(&tenant, 290, &limits);
        let refused = check(None).unwrap_err();
        assert_eq!(refused.reason, Some("rate_limited"));
        assert!(
            refused.message.starts_with(
                "request of unknown length exceeds the ingestion rate limit: 0 bytes are left of a burst of 100"
            ),
            "{refused}"
        );
        assert!(refused.retry_after.unwrap() >= Duration::from_secs(2), "{refused:?}");
        assert!(admission.admit(&tenant, 1, &limits).is_err());
        hand.advance(Duration::from_secs(3));
        assert_eq!((check(None), check(Some(100))), (Ok(()), Ok(())));
    }
}
