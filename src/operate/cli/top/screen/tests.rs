use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tokio::time::{Duration, advance};

use super::*;
use crate::observe::state::{ObjectSummary, PhaseName, StateSnapshot};
use crate::operate::cli::request::RequestError;
use crate::operate::cli::status::rates::Rates;
use crate::operate::cli::status::testing::{document, object};

/// Returns the state after `seconds`, in which 10 pods changed and the handler made 25 attempts a second.
fn state(seconds: u32, objects: Vec<ObjectSummary>) -> StateSnapshot {
    let mut document = document(objects);
    document.uptime_seconds = 3600.0 + f64::from(seconds);
    document.watches = serde_json::from_value(serde_json::json!([{
        "kind": "Pod", "listed": true, "objects": 1200, "undecodable": 0, "added": 1200, "modified": 10 * seconds, "deleted": 0,
        "lists": 1, "errors": 0, "said": null, "silentSeconds": 1.0, "error": null,
    }]))
    .unwrap();
    document.handlers[0].attempts = u64::from(25 * seconds);
    document.handlers[0].counts.insert(PhaseName::Running, 1);
    document.handlers[0].counts.insert(PhaseName::Failed, 1);
    document
}

fn objects() -> Vec<ObjectSummary> {
    let mut often = object("web-2", "retrying", 3.0, Some("busy"));
    often.last_error.as_mut().unwrap().attempts = 9;
    vec![
        object("web-1", "failed", 61.0, Some("no address is left")),
        often,
        object("web-3", "running", 1.0, None),
    ]
}

fn view() -> View {
    let mut view = View::new("2s".parse().unwrap(), state(0, objects()));
    view.update(state(2, objects()));
    view
}

fn drawn(view: &mut View, width: u16, height: u16) -> (Vec<String>, Terminal<TestBackend>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    ((0..height).map(row).collect(), terminal)
}

fn key(view: &mut View, code: KeyCode) -> bool {
    press(view, KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn a_replica_that_was_not_asked_before_makes_no_rate() {
    let mut joined = state(2, objects());
    let mut other = state(0, Vec::new());
    other.handlers[0].in_every_replica = true;
    other.handlers[0].attempts = 1_000_000;
    joined.merge(other);
    assert_eq!(joined.handlers[0].attempts, 1_000_050);
    let rate =
        |previous: &StateSnapshot| Rates { previous: Some(previous), current: &joined }.attempts("vif");
    assert_eq!(rate(&state(0, objects())), "-");
}

#[tokio::test(start_paused = true)]
async fn a_frame_shows_watches_handlers_rates_and_the_slowest_objects() {
    let (frame, terminal) = drawn(&mut view(), 100, 14);
    let expected = [
        "staffetta 0.1.0 on web-1: leader, ready, up for 1h00m, 2 waiting",
        "",
        "WATCH  OBJECTS  EVENTS/S  LISTS  ERRORS  SILENT  LAST ERROR",
        "Pod    1200     10.0      1      0       1s",
        "",
        "HANDLER  ATTEMPTS/S  HELD  QUEUED  RUNNING  RETRYING  FAILED  STATE",
        "vif      25.0        0     0       1        0         1       open",
        "",
        "HANDLER  KIND  NAMESPACE/NAME  STATE     SINCE  ATTEMPTS  NEXT    LAST ERROR",
        "vif      Pod   default/web-1   failed    1m01s  3         in 30s  no address is left",
        "vif      Pod   default/web-2   retrying  3s     9         in 30s  busy",
        "vif      Pod   default/web-3   running   1s",
        "",
        "q quit  j/k scroll  lines 1-11 of 11  every 2s",
    ];
    assert_eq!(frame, expected);
    let buffer = terminal.backend().buffer();
    let colours = [(34, 0), (54, 6), (62, 6), (31, 9), (31, 10), (0, 9)].map(|cell| buffer[cell].fg);
    assert_eq!(colours, [Color::Green, Color::Red, Color::Green, Color::Red, Color::Yellow, Color::Reset]);
}

#[tokio::test(start_paused = true)]
async fn keys_scroll_and_quit() {
    let mut view = view();
    assert!(key(&mut view, KeyCode::Up));
    for _ in 0..50 {
        assert!(key(&mut view, KeyCode::Char('j')));
    }
    let (frame, _) = drawn(&mut view, 100, 6);
    assert_eq!(frame[0], "staffetta 0.1.0 on web-1: leader, ready, up for 1h00m, 2 waiting");
    assert!(frame[4].contains("web-3"), "{frame:?}");
    assert!(frame[5].contains("lines 8-11 of 11"), "{frame:?}");
    assert!(key(&mut view, KeyCode::Up));
    assert!(drawn(&mut view, 100, 6).0[5].contains("lines 7-10 of 11"));

    assert!(!key(&mut view, KeyCode::Char('q')));
    assert!(!press(&mut view, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(key(&mut view, KeyCode::Char('c')));
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_reported_with_the_age_of_the_state_until_there_is_another() {
    let mut view = view();
    advance(Duration::from_secs(12)).await;
    view.answered(Err(RequestError::Rejected("nobody is there".into())));
    let (frame, terminal) = drawn(&mut view, 100, 14);
    assert_eq!(frame[1], "no answer, this is the state of 12s ago: nobody is there");
    assert_eq!(terminal.backend().buffer()[(0, 1)].fg, Color::Red);
    assert!(frame[12].contains("web-3") && frame[13].starts_with("q quit"), "{frame:?}");
    view.answered(Ok(state(16, objects())));
    let (frame, _) = drawn(&mut view, 100, 14);
    assert!(frame[3].starts_with("Pod    1200     10.0"), "{frame:?}");
}

#[tokio::test(start_paused = true)]
async fn another_leader_has_no_rates_yet() {
    let mut view = view();
    let mut other = state(1, Vec::new());
    other.identity = "web-2".into();
    view.update(other);
    let (frame, _) = drawn(&mut view, 100, 10);
    assert!(frame[3].starts_with("Pod    1200     -   "), "{frame:?}");
    assert_eq!(frame[8], "Every object is handled.");
    view.update({
        let mut odd = state(2, Vec::new());
        let object = serde_json::json!({ "kind": "Pod", "namespace": "default", "name": "odd", "uid": "u", "error": "no spec" });
        odd.undecodable = serde_json::from_value(serde_json::json!([object])).unwrap();
        odd
    });
    let (frame, _) = drawn(&mut view, 100, 14);
    assert!(frame[10].contains("default/odd") && frame[12] == "Every other object is handled.", "{frame:?}");
}

#[tokio::test(start_paused = true)]
async fn lines_that_are_wider_than_the_terminal_are_cut_and_a_small_one_shows_what_fits() {
    let (frame, _) = drawn(&mut view(), 40, 14);
    assert_eq!(frame[0], "staffetta 0.1.0 on web-1: leader, ready…");
    let (frame, _) = drawn(&mut view(), 40, 2);
    assert!(frame[0].starts_with("staffetta 0.1.0") && frame[1].starts_with("q quit"), "{frame:?}");
    for (width, height) in [(1, 1), (0, 0)] {
        drawn(&mut view(), width, height);
    }
}
