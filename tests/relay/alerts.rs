//! Alerts of a lasting failure, evaluated as Prometheus does.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use staffetta::config::WebhookOptions;
use staffetta_driver::RequestOutcome;

use crate::monitoring::rules;
use crate::promql;

/// The default interval at which Prometheus scrapes and evaluates.
const SCRAPE: Duration = Duration::from_secs(60);

fn rule(name: &str) -> Value {
    let mut rules = rules();
    rules.retain(|rule| rule["alert"] == name);
    assert_eq!(rules.len(), 1, "{name}");
    rules.remove(0)
}

fn seconds(length: impl Into<Duration>) -> u64 {
    length.into().as_secs()
}

#[test]
fn an_object_that_goes_on_failing_raises_an_alert_within_three_minutes() {
    let rule = rule("StaffettaObjectsFailing");
    let query = promql::read(rule["expr"].as_str().unwrap()).unwrap();
    let [selector] = &query.selectors[..] else { panic!("one series is looked at: {query:?}") };
    // A gauge that counts an object after a minute and until it is handled, so that no range is needed.
    assert_eq!(selector.metric, "staffetta_failing_objects");
    assert!(selector.range.is_none() && selector.matchers.is_empty(), "{selector:?}");
    assert!(rule["expr"].as_str().unwrap().ends_with("> 0"));
    let hold = promql::duration(rule["for"].as_str().unwrap()).unwrap();
    let counted = Duration::from_secs(60);
    assert!(counted + hold + SCRAPE <= Duration::from_secs(180), "{hold:?}");
}

#[test]
fn every_alert_has_a_section_in_the_page_of_alerts_that_its_runbook_url_names() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/alerts.md")).unwrap();
    let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let names: Vec<_> = rules().iter().map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect();
    assert_eq!(sections, names);
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap().to_lowercase();
        assert_eq!(rule["annotations"]["runbook_url"], format!("docs/alerts.md#{name}"));
    }
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
