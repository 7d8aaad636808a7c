use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::options::Times;

const MS: Duration = Duration::from_millis(1);

/// A device whose changes take 10 ms each.
fn iox(change: impl FnOnce(&mut Options)) -> (Iox, Instant) {
    let mut options = Options { times: Times::each(10 * MS), ..Options::default() };
    change(&mut options);
    let now = Instant::now();
    (Iox::new(options, now, Timestamp::UNIX_EPOCH), now)
}

fn configuration(apps: &[Value]) -> Value {
    json!({ "apps": { "app": apps } })
}

fn install(app: &str) -> Operation {
    Operation::Install { app: app.into(), package: "flash:/hello.tar".into() }
}

fn state(iox: &Iox, app: &str) -> Option<State> {
    iox.app(app).map(|app| app.state)
}

fn effects(iox: &Iox, app: &str) -> Vec<Effect> {
    iox.event_log.entries(0).into_iter().filter(|entry| entry.app == app).map(|entry| entry.effect).collect()
}

#[test]
fn an_app_that_starts_by_itself_goes_from_step_to_step_in_its_time() {
    let (mut iox, now) = iox(|_| ());
    let config = configuration(&[json!({ "application-name": "a", "start": true })]);
    let config = AppConfig(&config);
    iox.operate(&install("a"), config, now).unwrap();
    let states = [5, 15, 25, 35].map(|after| {
        iox.advance(config, now + after * MS);
        state(&iox, "a").unwrap()
    });
    assert_eq!(states, [State::Installing, State::Deployed, State::Activated, State::Running]);
    assert_eq!(iox.app("a").unwrap().address_at(now + 35 * MS), Some([192, 0, 2, 2].into()));
}

#[test]
fn however_late_one_looks_each_step_was_taken_when_it_was_due() {
    let (mut iox, now) = iox(|_| ());
    let config = configuration(&[json!({ "application-name": "a", "start": true })]);
    iox.operate(&install("a"), AppConfig(&config), now).unwrap();
    iox.advance(AppConfig(&config), now + Duration::from_secs(60));
    let at: Vec<_> = iox.event_log.entries(0).iter().map(|entry| entry.at.as_millisecond()).collect();
    assert_eq!(at, [0, 10, 20, 30]);
}

#[test]
fn an_app_that_does_not_is_taken_up_and_down_by_operations() {
    let (mut iox, now) = iox(|_| ());
    let config = configuration(&[json!({ "application-name": "a" })]);
    let name = || "a".to_owned();
    let operations = [
        install("a"),
        Operation::Activate(name()),
        Operation::Start(name()),
        Operation::Stop(name()),
        Operation::Deactivate(name()),
        Operation::Uninstall(name()),
    ];
    let mut states = Vec::new();
    for (number, operation) in (0..).zip(&operations) {
        iox.operate(operation, AppConfig(&config), now + number * 20 * MS).unwrap();
        iox.advance(AppConfig(&config), now + number * 20 * MS + 10 * MS);
        states.push(state(&iox, "a"));
    }
    let expected =
        [State::Deployed, State::Activated, State::Running, State::Activated, State::Deployed].map(Some);
    assert_eq!(states[..5], expected);
    assert_eq!(states[5], None);
}

#[test]
fn an_operation_that_is_not_for_the_state_of_an_app_is_refused_and_entered() {
    let (mut iox, now) = iox(|_| ());
    let config = configuration(&[]);
    let config = AppConfig(&config);
    let mut codes = vec![iox.operate(&Operation::Start("a".into()), config, now).unwrap_err().code];
    iox.operate(&install("a"), config, now).unwrap();
    codes.push(iox.operate(&install("a"), config, now).unwrap_err().code);
    codes.push(iox.operate(&Operation::Activate("a".into()), config, now).unwrap_err().code);
    let later = now + 10 * MS;
    codes.push(iox.operate(&Operation::Stop("a".into()), config, later).unwrap_err().code);
    assert_eq!(codes, [409, 409, 409, 412]);
    assert_eq!(effects(&iox, "a").iter().filter(|effect| matches!(effect, Effect::Refused(..))).count(), 4);
}

#[test]
fn an_uninstall_cancels_an_install() {
    let (mut iox, now) = iox(|_| ());
    let config = configuration(&[json!({ "application-name": "a" })]);
    let config = AppConfig(&config);
    iox.plan("a", 1, Install::Takes(Duration::from_secs(3600)));
    iox.operate(&install("a"), config, now).unwrap();
    iox.operate(&Operation::Uninstall("a".into()), config, now).unwrap();
    iox.advance(config, now + 10 * MS);
    assert_eq!(state(&iox, "a"), None);
    assert_eq!(effects(&iox, "a")[1..], [Effect::InstallFailed(Some("it was cancelled".into()))]);
}

#[test]
fn a_write_of_the_configuration_starts_nothing_that_was_stopped() {
    for stops_to in [StopsTo::Activated, StopsTo::Stopped] {
        let (mut iox, now) = iox(|options| options.stops_to = stops_to);
        let config = configuration(&[json!({ "application-name": "a", "start": true })]);
        let config = AppConfig(&config);
        iox.operate(&install("a"), config, now).unwrap();
        iox.advance(config, now + 40 * MS);
        for operation in [Operation::Stop("a".into()), Operation::Deactivate("a".into())] {
            iox.operate(&operation, config, now + 40 * MS).unwrap();
            iox.advance(config, now + 80 * MS);
            let stopped = state(&iox, "a");
            iox.go_on("a", config, now + 80 * MS);
            iox.advance(config, now + 3600 * 1000 * MS);
            assert_eq!(state(&iox, "a"), stopped, "{stops_to:?} {operation:?}");
        }
    }
}

#[test]
fn a_refusal_says_when_the_app_has_gone_on_by_itself() {
    for (starts, blame) in [(true, " by its own start"), (false, "")] {
        let (mut iox, now) = iox(|_| ());
        let config = configuration(&[json!({ "application-name": "a", "start": starts })]);
        let config = AppConfig(&config);
        iox.operate(&install("a"), config, now).unwrap();
        let at = now + 15 * MS;
        let activate = Operation::Activate("a".into());
        if !starts {
            iox.operate(&activate, config, at).unwrap();
        }
        let refused = iox.operate(&activate, config, at).unwrap_err();
        assert_eq!(refused.message, format!("another operation on a is in progress{blame}"));
    }
}

#[test]
fn an_install_beside_another_fails_without_a_word() {
    let (mut iox, now) = iox(|_| ());
    let config = configuration(&[]);
    let config = AppConfig(&config);
    let before = iox.notifications.json().len();
    iox.operate(&install("a"), config, now).unwrap();
    iox.operate(&install("b"), config, now).unwrap();
    iox.advance(config, now + 10 * MS);
    assert_eq!((state(&iox, "a"), state(&iox, "b")), (Some(State::Deployed), None));
    assert_eq!(effects(&iox, "b")[1], Effect::InstallFailed(None));
    assert_eq!(iox.notifications.json().len(), before + 1, "only of the one that succeeded");
}

#[test]
fn a_package_that_cannot_be_read_fails_with_the_reason_in_a_notification() {
    let (mut iox, now) = iox(|options| options.packages = Some(["flash:/there.tar".into()].into()));
    let config = configuration(&[]);
    for (package, number) in [("nginx:latest", 0), ("flash:/hello.tar", 1), ("flash:/there.tar", 2)] {
        let app = format!("a{number}");
        let install = Operation::Install { app: app.clone(), package: package.into() };
        iox.operate(&install, AppConfig(&config), now + number * 20 * MS).unwrap();
        iox.advance(AppConfig(&config), now + number * 20 * MS + 10 * MS);
        assert_eq!(state(&iox, &app).is_some(), number == 2, "{package}");
    }
    let reported = iox.notifications.json();
    assert_eq!(reported[1]["status"], "im-app-fail");
    assert_eq!((&reported[1]["app-id"], &reported[1]["ev-type"]), (&json!("a0"), &json!("im-app-install")));
    assert!(reported[1]["message"].as_str().unwrap().contains("nginx:latest"));
}

#[test]
fn a_copy_is_there_when_its_time_is_over_and_stays_until_it_is_deleted() {
    let (mut iox, now) = iox(|options| options.packages = Some(["http://h/a.tar".into()].into()));
    let copy = "flash:/a.tar";
    assert!(iox.copy("http://h/b.tar", copy, now).unwrap_err().0.contains("No such file"));
    iox.copy("http://h/a.tar", copy, now).unwrap();
    assert!(iox.delete(copy, now + 5 * MS).unwrap_err().0.contains("No such file"), "it comes all the same");
    assert_eq!((iox.exists(copy, now), iox.exists(copy, now + 10 * MS)), (false, true));
    let config = configuration(&[]);
    iox.reboot(Kept::Nothing, AppConfig(&config), now + 20 * MS);
    assert!(iox.exists(copy, now + 20 * MS));
    iox.delete(copy, now + 30 * MS).unwrap();
    assert!(iox.delete(copy, now + 30 * MS).unwrap_err().0.contains("No such file"));
    assert_eq!(effects(&iox, copy), [Effect::FileCopied("http://h/a.tar".into()), Effect::FileDeleted]);
}

#[test]
fn what_asks_for_more_than_is_left_is_not_activated_and_does_not_try_for_ever() {
    let (mut iox, now) = iox(|options| options.resources.memory_mb = 600);
    let app = |name: &str| {
        let profile = json!({ "memory-capacity-mb": 512 });
        json!({ "application-name": name, "start": true, "application-resource-profile": profile })
    };
    let config = configuration(&[app("a"), app("b")]);
    let config = AppConfig(&config);
    iox.operate(&install("a"), config, now).unwrap();
    iox.advance(config, now + 50 * MS);
    iox.operate(&install("b"), config, now + 50 * MS).unwrap();
    iox.advance(config, now + Duration::from_secs(60));
    assert_eq!((state(&iox, "a"), state(&iox, "b")), (Some(State::Running), Some(State::Deployed)));
    let failed = effects(&iox, "b").into_iter().filter(|one| matches!(one, Effect::ActivationFailed(_)));
    assert_eq!(failed.count(), 1);
    assert_eq!(iox.left(config).memory_mb, 88);
}

#[test]
fn two_apps_with_one_static_address_are_a_conflict_that_the_ledger_tells() {
    let (mut iox, now) = iox(|options| options.parallel_installs = 2);
    let app = |name: &str| {
        let network = json!({ "virtualportgroup-guest-ip-address-1": "10.0.0.10" });
        json!({ "application-name": name, "start": true, "application-network-resource": network })
    };
    let config = configuration(&[app("a"), app("b")]);
    iox.operate(&install("a"), AppConfig(&config), now).unwrap();
    iox.operate(&install("b"), AppConfig(&config), now + MS).unwrap();
    iox.advance(AppConfig(&config), now + 100 * MS);
    assert_eq!(effects(&iox, "b").last(), Some(&Effect::AddressConflict("a".into())));
}

#[test]
fn a_planned_install_goes_as_planned_as_often_as_planned() {
    let (mut iox, now) = iox(|_| ());
    let config = configuration(&[]);
    iox.plan("a", 1, Install::FailsInSilence);
    iox.plan("a", 1, Install::Breaks("bad signature".into()));
    iox.plan("a", 1, Install::Takes(Duration::from_secs(5)));
    let mut at = now;
    let mut seen = Vec::new();
    for _ in 0..3 {
        iox.operate(&install("a"), AppConfig(&config), at).unwrap();
        iox.advance(AppConfig(&config), at + 10 * MS);
        seen.push(state(&iox, "a"));
        if seen.last() == Some(&Some(State::Error)) {
            iox.operate(&Operation::Uninstall("a".into()), AppConfig(&config), at + 10 * MS).unwrap();
        }
        at += 30 * MS;
    }
    assert_eq!(seen, [None, Some(State::Error), Some(State::Installing)]);
}

#[test]
fn after_a_reboot_apps_come_back_or_are_forgotten_as_was_kept() {
    let config = configuration(&[json!({ "application-name": "a", "start": true })]);
    let config = AppConfig(&config);
    for (kept, expected) in [(Kept::Apps, Some(State::Running)), (Kept::Configuration, None)] {
        let (mut iox, now) = iox(|_| ());
        iox.operate(&install("a"), config, now).unwrap();
        iox.advance(config, now + 50 * MS);
        iox.reboot(kept, config, now + 100 * MS);
        assert_ne!(state(&iox, "a"), Some(State::Running));
        iox.advance(config, now + 200 * MS);
        assert_eq!(state(&iox, "a"), expected);
    }
}
