//! Alerts of a lasting failure, evaluated as Prometheus does.

use std::time::Duration;

use serde_json::Value;
use staffetta::config::{RelayOptions, WebhookOptions};
use staffetta_driver::RequestOutcome;

use crate::monitoring::rules;
use crate::promql::{self, Selector};

/// The default scrape and evaluation interval of Prometheus, in seconds.
const STEP: u64 = 60;

fn rule(name: &str) -> Value {
    let mut rules = rules();
    rules.retain(|rule| rule["alert"] == name);
    assert_eq!(rules.len(), 1, "{name}");
    rules.remove(0)
}

fn seconds(length: impl Into<Duration>) -> u64 {
    length.into().as_secs()
}

/// The scrape times in seconds at which an object that fails from 0 to `end` has the phase `failed`. It is retried for
/// `relay.retry_timeout`, with a last attempt that hangs until its time limit, and waits between these rounds.
fn failed(relay: &RelayOptions, end: u64) -> Vec<u64> {
    let round = seconds(relay.retry_timeout) + seconds(relay.handler_timeout);
    let (mut from, mut wait, mut looks) = (round, seconds(relay.failed_resync), Vec::new());
    while from < end {
        looks.extend((from..end.min(from + wait)).filter(|second| second % STEP == 0));
        from += wait + round;
        wait = seconds(relay.failed_resync_max).min(2 * wait);
    }
    looks
}

/// The evaluation times from 0 to `end` at which the alert fires, given the times at which the series is above zero.
fn alarmed(selector: &Selector, hold: Duration, above: &[u64], end: u64) -> Vec<u64> {
    let window = seconds(selector.range.as_ref().expect("a maximum is taken over a time").length);
    let holds = |now: u64| above.iter().any(|look| *look <= now && now < look + window);
    let mut since = None;
    let mut alarmed = Vec::new();
    for now in (0..end).step_by(usize::try_from(STEP).unwrap()) {
        since = if holds(now) { since.or(Some(now)) } else { None };
        if since.is_some_and(|since| now - since >= hold.as_secs()) {
            alarmed.push(now);
        }
    }
    alarmed
}

#[test]
fn the_alert_for_a_failed_object_begins_within_a_quarter_of_an_hour_and_lasts_until_it_recovers() {
    const DAY: u64 = 24 * 3600;
    let rule = rule("StaffettaObjectsFailed");
    let query = promql::read(rule["expr"].as_str().unwrap()).unwrap();
    let [selector] = &query.selectors[..] else { panic!("one series is looked at: {query:?}") };
    assert_eq!(selector.metric, "staffetta_objects");
    assert!(matches!(&selector.matchers[..], [phase] if phase.value == "failed"), "{selector:?}");
    assert_eq!(selector.range.as_ref().unwrap().function, "max_over_time");
    assert!(rule["expr"].as_str().unwrap().ends_with("> 0"));
    let hold = promql::duration(rule["for"].as_str().unwrap()).unwrap();

    let looks = failed(&RelayOptions::default(), DAY);
    let alarmed = alarmed(selector, hold, &looks, DAY + 3600);
    let (first, last) = (alarmed[0], alarmed[alarmed.len() - 1]);
    assert!(first <= 15 * 60, "it is told of after {first} s");
    assert!((DAY..DAY + 20 * 60).contains(&last), "it is told of until {last} s");
    let gaps: Vec<_> = alarmed.windows(2).filter(|pair| pair[1] != pair[0] + STEP).collect();
    assert!(gaps.is_empty(), "it is taken back in between: {gaps:?}");
}

#[test]
fn lasting_errors_of_a_cloud_raise_an_alert() {
    let rule = rule("StaffettaCloudErrors");
    let hold = promql::duration(rule["for"].as_str().unwrap()).unwrap();
    let query = promql::read(rule["expr"].as_str().unwrap()).unwrap();
    let [bad, all] = &query.selectors[..] else { panic!("a share of two: {query:?}") };
    for selector in [bad, all] {
        assert_eq!(selector.metric, "staffetta_openstack_requests_total");
    }
    assert!(all.matchers.is_empty());
    let outcomes: Vec<_> = bad.matchers[0].value.split('|').collect();
    let meant = [RequestOutcome::Throttled, RequestOutcome::Failed, RequestOutcome::Unanswered];
    assert!(meant.iter().all(|outcome| outcomes.contains(&outcome.name())) && outcomes.len() == meant.len());
    // A burst is in the rate for the length of its window.
    assert!(hold > bad.range.as_ref().unwrap().length);
}

#[test]
fn a_subnet_without_addresses_raises_an_alert_and_so_do_pods_that_wait() {
    for (alert, metric) in [
        ("StaffettaSubnetExhausted", "staffetta_prefix_exhausted_subnets"),
        ("StaffettaPodsWithoutAddress", "staffetta_prefix_waiting"),
    ] {
        let rule = rule(alert);
        let query = promql::read(rule["expr"].as_str().unwrap()).unwrap();
        let [selector] = &query.selectors[..] else { panic!("one series is looked at: {query:?}") };
        // Both are gauges that stay above zero for as long as it lasts, so that no range is needed.
        assert!(selector.metric == metric && selector.range.is_none() && selector.matchers.is_empty());
        assert!(rule["expr"].as_str().unwrap().ends_with("> 0"));
        let hold = promql::duration(rule["for"].as_str().unwrap()).unwrap();
        // A pool that grows, or an API that throttles for 30 s, is no reason.
        assert!((120..=900).contains(&hold.as_secs()), "{alert}: {hold:?}");
    }
}

#[test]
fn the_certificate_of_the_webhook_raises_an_alert_only_after_its_replacement_was_due() {
    let rule = rule("StaffettaWebhookCertificate");
    let expression = rule["expr"].as_str().unwrap();
    let query = promql::read(expression).unwrap();
    assert_eq!(query.selectors[0].metric, "staffetta_webhook_certificate_expiry_timestamp_seconds");
    let left: u64 = expression.rsplit_once("< ").unwrap().1.parse().unwrap();
    let replaced_at = seconds(WebhookOptions::default().certificate_lifetime) / 3;
    assert!(left < replaced_at, "{left} s, and it is replaced when {replaced_at} s are left");
}
