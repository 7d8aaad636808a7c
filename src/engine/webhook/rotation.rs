//! Decides when the leader replaces the certificate of the webhook.
//!
//! A new certificate is first written beside the served one, then trusted by the API servers, and served only then. So the certificate that
//! a replica serves stays trusted, although replicas and API servers notice a change with a delay. Only a certificate that replaces none,
//! or an expired one, is served at once. Every step follows from what the Secret and the configuration of the webhook contain, so that
//! another leader continues where one has ended.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::certificate::ServerCertificate;
use super::stored::StoredCertificates;

/// The maximum time within which API servers notice that they shall trust another certificate.
const PROPAGATION: Duration = Duration::from_secs(30);

/// The part of the `MutatingWebhookConfiguration` that concerns the certificate: the names for which it must
/// be valid, and the certificates that API servers trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WebhookTrust {
    /// The host names by which API servers call the webhook.
    pub(super) names: BTreeSet<String>,
    /// The certificates that API servers trust, in PEM; `None` if there are none, or different ones for several webhooks.
    pub(super) bundle: Option<String>,
    /// The time at which this process first noticed the present value of `bundle`.
    pub(super) since: Timestamp,
}

/// The next step of the leader in the rotation of the webhook's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RotationStep {
    /// Nothing is due before this time, unless the Secret or the configuration changes.
    Wait(Timestamp),
    /// Write a new certificate that is served at once, because there is none that can be served.
    Replace,
    /// Write a new certificate that is served later, when API servers trust it.
    Prepare,
    /// Make the API servers trust these certificates, in PEM.
    Trust(String),
    /// Serve the certificate that was prepared.
    Promote,
}

/// Returns the next step at the time `now`. Certificates are valid for `lifetime`, and are replaced when a third of it is left, or when
/// they are not valid for exactly the names in `trust`.
pub(super) fn next_step(
    stored: &StoredCertificates,
    trust: &WebhookTrust,
    lifetime: Duration,
    now: Timestamp,
) -> RotationStep {
    let is_valid = |certificate: &&ServerCertificate| now < certificate.expires;
    let next = stored.next.as_ref().filter(is_valid).filter(|next| next.names == trust.names);
    let Some(serving) = stored.serving.as_ref().filter(is_valid) else {
        return if next.is_some() { RotationStep::Promote } else { RotationStep::Replace };
    };
    let bundle = stored.bundle();
    if trust.bundle.as_ref() != Some(&bundle) {
        return RotationStep::Trust(bundle);
    }
    if next.is_some() {
        let due = trust.since.saturating_add(PROPAGATION.min(lifetime / 10)).unwrap_or(Timestamp::MAX);
        return if due <= now { RotationStep::Promote } else { RotationStep::Wait(due) };
    }
    let due = serving.expires.saturating_sub(lifetime / 3).unwrap_or(Timestamp::MIN);
    if due <= now || serving.names != trust.names {
        return RotationStep::Prepare;
    }
    RotationStep::Wait(due)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
    /// The maximum delay with which a replica or an API server notices a change: together less than [`PROPAGATION`].
    const LAG: i64 = 14;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The certificate number `number`, generated at the time `now`.
    fn certificate(number: usize, names: &BTreeSet<String>, now: i64) -> ServerCertificate {
        let (chain, key) = (format!("({number})"), String::new());
        ServerCertificate { chain, key, names: names.clone(), expires: at(now) + LIFETIME }
    }

    /// A leader, the Secret and the configuration that it writes, and what late replicas and API servers see of them.
    struct Cluster {
        now: i64,
        stored: StoredCertificates,
        trust: WebhookTrust,
        /// The number of certificates so far.
        generated: usize,
        /// The states that a late replica may serve, and a late API server may trust, each with the time at which it was replaced.
        served: VecDeque<(i64, Option<ServerCertificate>)>,
        trusted: VecDeque<(i64, Option<String>)>,
    }

    impl Cluster {
        fn new() -> Self {
            let trust = WebhookTrust { names: names(&["a"]), ..WebhookTrust::default() };
            let (served, trusted) = (VecDeque::new(), VecDeque::new());
            Self {
                now: 1_000_000,
                stored: StoredCertificates::default(),
                trust,
                generated: 0,
                served,
                trusted,
            }
        }

        fn step(&mut self) -> RotationStep {
            let step = next_step(&self.stored, &self.trust, LIFETIME, at(self.now));
            let new = certificate(self.generated, &self.trust.names, self.now);
            let stored = match &step {
                RotationStep::Wait(_) => None,
                RotationStep::Replace => Some(StoredCertificates::only(new)),
                RotationStep::Prepare => Some(self.stored.prepared(new)),
                RotationStep::Promote => Some(self.stored.promoted(at(self.now))),
                RotationStep::Trust(bundle) => {
                    self.trusted.push_back((self.now, self.trust.bundle.replace(bundle.clone())));
                    self.trust.since = at(self.now);
                    None
                }
            };
            self.generated += usize::from(matches!(step, RotationStep::Replace | RotationStep::Prepare));
            if let Some(stored) = stored {
                self.served.push_back((self.now, std::mem::replace(&mut self.stored, stored).serving));
            }
            step
        }

        /// Steps until the leader waits.
        fn run(&mut self) -> Timestamp {
            for _ in 0..20 {
                if let RotationStep::Wait(until) = self.step() {
                    return until;
                }
            }
            panic!("it does not come to rest: {:?}", self.trust);
        }

        /// Panics if a replica may serve a certificate that an API server does not trust, or that has expired.
        fn check(&mut self) {
            let now = self.now;
            self.served.retain(|(replaced, _)| now - replaced < LAG);
            self.trusted.retain(|(replaced, _)| now - replaced < LAG);
            let served = self.served.iter().map(|(_, served)| served).chain([&self.stored.serving]);
            let served: Vec<_> = served.flatten().collect();
            for bundle in self.trusted.iter().map(|(_, bundle)| bundle).chain([&self.trust.bundle]) {
                for certificate in &served {
                    let chain = &certificate.chain;
                    assert!(
                        bundle.as_ref().is_some_and(|bundle| bundle.contains(chain)),
                        "{chain} in {bundle:?}"
                    );
                    assert!(at(now) < certificate.expires, "{chain} has expired");
                }
            }
        }
    }

    #[test]
    fn the_first_certificate_is_served_and_trusted_at_once_and_replaced_when_a_third_of_its_time_is_left() {
        let mut cluster = Cluster::new();
        let due = cluster.run();
        assert_eq!(due, at(1_000_000 + 60 * 24 * 3600));
        assert_eq!(cluster.trust.bundle.as_deref(), Some("(0)"));
        cluster.now = due.as_second();
        assert_eq!(cluster.step(), RotationStep::Prepare);
        assert_eq!(cluster.step(), RotationStep::Trust("(0)(1)".to_owned()));
        assert_eq!(cluster.step(), RotationStep::Wait(due + PROPAGATION), "API servers notice it later");
        cluster.now += 30;
        assert_eq!(cluster.step(), RotationStep::Promote);
        assert_eq!(cluster.step(), RotationStep::Trust("(1)(0)".to_owned()));
    }

    #[test]
    fn a_certificate_that_expired_while_nobody_led_is_replaced_at_once() {
        let mut cluster = Cluster::new();
        cluster.run();
        cluster.now += 91 * 24 * 3600;
        assert_eq!(cluster.step(), RotationStep::Replace);
        assert_eq!(cluster.step(), RotationStep::Trust("(1)".to_owned()));
    }

    #[test]
    fn another_host_name_gets_a_certificate_without_a_gap() {
        let mut cluster = Cluster::new();
        cluster.run();
        cluster.now += 100;
        cluster.trust.names = names(&["a", "b"]);
        assert_eq!(cluster.step(), RotationStep::Prepare);
        cluster.run();
        cluster.check();
        cluster.now += 30;
        cluster.run();
        assert_eq!(cluster.stored.serving.as_ref().unwrap().names, cluster.trust.names);
    }

    #[test]
    fn a_bundle_that_somebody_removed_is_written_again() {
        let mut cluster = Cluster::new();
        cluster.run();
        cluster.trust.bundle = None;
        assert_eq!(cluster.step(), RotationStep::Trust("(0)".to_owned()));
    }

    proptest! {
        /// The leader may end after any step, and its successor continues after any pause of up to five days, in which nobody acts.
        #[test]
        fn a_replica_never_serves_what_an_api_server_does_not_trust(
            pauses in prop::collection::vec((1_usize..4, prop_oneof![0_i64..40, 0_i64..5 * 24 * 3600], any::<bool>()), 1..60),
        ) {
            let mut cluster = Cluster::new();
            cluster.run();
            // The first certificate was not trusted before it existed.
            (cluster.served, cluster.trusted) = (VecDeque::new(), VecDeque::new());
            for (steps, pause, takes_over) in pauses {
                for _ in 0..steps {
                    cluster.step();
                    cluster.check();
                }
                if takes_over {
                    cluster.trust.since = at(cluster.now);
                }
                cluster.now += pause;
                cluster.check();
            }
        }
    }
}
