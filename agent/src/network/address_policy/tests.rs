use async_trait::async_trait;
use athanor_chassis::net::{NetListener, NetStream};

use super::*;

/// Network with fixed names, which opens no stream.
struct NamedNet(Vec<(&'static str, Vec<&'static str>)>);

#[async_trait]
impl Net for NamedNet {
    async fn listen(&self, _: SocketAddr) -> io::Result<Box<dyn NetListener>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect(&self, _: SocketAddr, _: Duration) -> io::Result<NetStream> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = name.rsplit_once(':').unwrap();
        if host == "silent" {
            std::future::pending::<()>().await;
        }
        let found = self.0.iter().find(|(known, _)| *known == host).ok_or(io::ErrorKind::NotFound)?;
        let port = port.parse().unwrap();
        Ok(found.1.iter().map(|address| SocketAddr::new(address.parse().unwrap(), port)).collect())
    }
}

fn policy(allowed: &[&str]) -> AddressPolicy {
    let net = NamedNet(vec![
        ("local", vec!["127.0.0.1", "::1"]),
        ("mixed", vec!["169.254.169.254", "192.0.2.7"]),
        ("shop", vec!["192.0.2.8", "2001:db8::1"]),
    ]);
    let allowed_ranges = allowed.iter().map(|range| range.parse().unwrap()).collect();
    let settings = AddressPolicySettings { allowed_ranges, ..AddressPolicySettings::default() };
    AddressPolicy::new(Arc::new(net), Clock::system(), settings)
}

#[test]
fn restricted_addresses_have_their_kind_in_all_notations() {
    let cases = [
        ("127.0.0.1", RestrictedKind::Loopback),
        ("127.255.3.4", RestrictedKind::Loopback),
        ("::1", RestrictedKind::Loopback),
        ("::ffff:127.0.0.1", RestrictedKind::Loopback),
        ("::127.0.0.1", RestrictedKind::Loopback),
        ("::ffff:0:127.0.0.1", RestrictedKind::Loopback),
        ("64:ff9b::7f00:1", RestrictedKind::Loopback),
        ("64:ff9b:1::7f00:1", RestrictedKind::Loopback),
        ("2002:7f00:1::", RestrictedKind::Loopback),
        ("169.254.0.1", RestrictedKind::LinkLocal),
        ("fe80::1", RestrictedKind::LinkLocal),
        ("febf::1", RestrictedKind::LinkLocal),
        ("169.254.169.254", RestrictedKind::Metadata),
        ("::ffff:a9fe:a9fe", RestrictedKind::Metadata),
        ("fd00:ec2::254", RestrictedKind::Metadata),
        ("fd00:ec2::23", RestrictedKind::Metadata),
        ("fd00:42::42", RestrictedKind::Metadata),
        ("fd20:ce::254", RestrictedKind::Metadata),
        ("100.100.100.200", RestrictedKind::Metadata),
        ("168.63.129.16", RestrictedKind::Metadata),
        ("0.0.0.0", RestrictedKind::Unspecified),
        ("0.1.2.3", RestrictedKind::Unspecified),
        ("::", RestrictedKind::Unspecified),
        ("224.0.0.1", RestrictedKind::Multicast),
        ("255.255.255.255", RestrictedKind::Multicast),
        ("ff02::1", RestrictedKind::Multicast),
        ("240.0.0.1", RestrictedKind::Reserved),
    ];
    for (address, kind) in cases {
        assert_eq!(restricted_kind(address.parse().unwrap()), Some(kind), "{address}");
    }
    for address in
        ["10.0.0.1", "192.168.1.1", "100.64.0.1", "8.8.8.8", "2001:db8::1", "fd00::1", "2002:a00:1::"]
    {
        assert_eq!(restricted_kind(address.parse().unwrap()), None, "{address}");
    }
}

#[tokio::test]
async fn untrusted_host_with_restricted_addresses_is_rejected() {
    let error = policy(&[]).resolve("local", 80, true).await.unwrap_err();
    let expected = "host local has the loopback address 127.0.0.1, which targets of annotations, HTTP lists and \
                    DNS must not have; configure the target in a file, or add the address to \
                    allowed_target_ranges";
    assert_eq!(error.to_string(), expected);
    for host in ["127.0.0.1", "[::1]", "::1", "[::ffff:169.254.169.254]"] {
        let result = policy(&[]).resolve(host, 80, true).await;
        assert!(matches!(result, Err(AddressError::Restricted { .. })), "{host}");
    }
}

#[tokio::test]
async fn untrusted_host_with_other_addresses_keeps_only_those() {
    let found = policy(&[]).resolve("mixed", 81, true).await.unwrap();
    assert_eq!(found, ["192.0.2.7:81".parse().unwrap()]);
    assert_eq!(policy(&[]).resolve("shop", 81, true).await.unwrap().len(), 2);
}

#[tokio::test]
async fn allowed_range_and_trusted_source_admit_restricted_addresses() {
    let allowed = policy(&["127.0.0.0/8"]).resolve("local", 80, true).await.unwrap();
    assert_eq!(allowed, ["127.0.0.1:80".parse().unwrap()]);
    let mapped = policy(&["127.0.0.0/8"]).resolve("::ffff:127.0.0.1", 80, true).await.unwrap();
    assert_eq!(mapped.len(), 1);
    assert_eq!(policy(&[]).resolve("local", 80, false).await.unwrap().len(), 2);
    assert_eq!(policy(&["0.0.0.0/0", "::/0"]).resolve("local", 80, true).await.unwrap().len(), 2);
}

#[tokio::test]
async fn lookup_that_fails_or_hangs_is_reported() {
    let error = policy(&[]).resolve("nowhere", 80, false).await.unwrap_err();
    assert!(matches!(error, AddressError::Lookup { .. }), "{error}");
    for host in ["", "a:b", "a\nb", &"x".repeat(254)] {
        let error = policy(&[]).resolve(host, 80, false).await.unwrap_err();
        assert!(matches!(error, AddressError::InvalidHost { .. }), "{error}");
    }
    let (clock, hand) = Clock::manual(athanor_chassis::Timestamp::UNIX_EPOCH);
    let slow = AddressPolicy { clock, ..policy(&[]) };
    let (result, ()) = tokio::join!(slow.resolve("silent", 80, true), async {
        hand.wait_for_sleepers(1).await;
        hand.advance(Duration::from_secs(5));
    });
    assert!(matches!(result, Err(AddressError::LookupTimeout { .. })));
}

#[test]
fn ranges_are_parsed_and_contain_their_addresses() {
    let range: IpRange = "10.1.0.0/16".parse().unwrap();
    assert!(range.contains("10.1.255.1".parse().unwrap()));
    assert!(!range.contains("10.2.0.0".parse().unwrap()));
    assert!(!range.contains("fd00::1".parse().unwrap()));
    let single: IpRange = "fd00:ec2::254".parse().unwrap();
    assert_eq!(single.to_string(), "fd00:ec2::254/128");
    assert!(single.contains("fd00:ec2::254".parse().unwrap()));
    assert!(!single.contains("fd00:ec2::255".parse().unwrap()));
    for text in ["", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "localhost"] {
        assert_eq!(text.parse::<IpRange>(), Err(IpRangeError { text: text.to_owned() }));
    }
}
