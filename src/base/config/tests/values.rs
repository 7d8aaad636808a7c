//! Tests of the options in a valid file and a valid environment.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[test]
fn without_file_and_environment_all_options_have_their_defaults() {
    let configuration = Configuration::load(&schema(), None, []).unwrap();
    assert_eq!(configuration.relay, RelayOptions::default());
    assert_eq!(configuration.kubernetes.enabled_handlers, ["vif", "lb"]);
    assert_eq!(configuration.value["kubernetes"]["lamp_driver"], "candle");
    assert_eq!(configuration.value["relay"]["retry_timeout"], "500s");
    assert_eq!(
        configuration.value["lamp"],
        json!({"brightness": 60, "password": null, "rooms": ["kitchen"], "shades": {}, "bulbs": []})
    );
}

#[test]
fn the_environment_overrides_the_file_and_the_file_overrides_the_defaults() {
    let file =
        "[relay]\nfirst_list_backlog = 7\nmax_concurrency = 3\nhandler_timeout = 5\n[lamp]\nrooms = ['a']";
    let variables = [
        ("STAFFETTA_RELAY__FIRST_LIST_BACKLOG", "8"),
        ("STAFFETTA_RELAY__ALLOW_MASS_RELEASE", "false"),
        ("STAFFETTA_RELAY__RETRY_INTERVAL", "250ms"),
        ("STAFFETTA_LAMP__ROOMS", "b, c"),
        ("STAFFETTA_KUBERNETES__ENABLED_HANDLERS", "[\"night\"]"),
        ("STAFFETTA_KUBERNETES__LAMP_DRIVER", "torch"),
    ];
    let configuration = load(file, &variables).unwrap();
    let relay = &configuration.relay;
    assert_eq!(
        (relay.first_list_backlog.get(), relay.max_concurrency.get(), relay.allow_mass_release),
        (8, 3, false)
    );
    assert_eq!(relay.handler_timeout, TimeSpan::from_secs(5));
    assert_eq!(relay.retry_interval, "250ms".parse().unwrap());
    assert_eq!(configuration.kubernetes.enabled_handlers, ["night"]);
    assert_eq!(configuration.value["kubernetes"]["lamp_driver"], "torch");
    assert_eq!(configuration.value["lamp"]["rooms"], json!(["b", "c"]));
}

#[test]
fn a_table_of_the_environment_replaces_that_of_the_file() {
    let file = "[lamp.shades]\nred = 1\n";
    let shades =
        |text| load(file, &[("STAFFETTA_LAMP__SHADES", text)]).unwrap().value["lamp"]["shades"].take();
    assert_eq!(shades("{}"), json!({}));
    assert_eq!(shades("{ blue = 2 }"), json!({"blue": 2}));
}

#[test]
fn the_keys_of_a_table_are_taken_literally() {
    let file = "[lamp.shades]\n'example.com/x[0]' = 1\nUpper = 2\n";
    let configuration = load(file, &[]).unwrap();
    assert_eq!(configuration.value["lamp"]["shades"], json!({"example.com/x[0]": 1, "Upper": 2}));
}

#[test]
fn config_show_names_the_origin_of_each_value() {
    let configuration =
        load("[relay]\nfirst_list_backlog = 7\n", &[("STAFFETTA_LOG__FORMAT", "json")]).unwrap();
    let shown = configuration.show(&schema());
    let line =
        |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert!(line("first_list_backlog").starts_with("first_list_backlog = 7  # file "), "{shown}");
    assert!(line("first_list_backlog").ends_with("s.toml:2:22"), "{shown}");
    assert_eq!(line("format"), "format = \"json\"  # environment STAFFETTA_LOG__FORMAT");
    assert_eq!(line("retry_timeout"), "retry_timeout = \"500s\"  # default");
    assert_eq!(line("# kubeconfig"), "# kubeconfig is not set");
    assert_eq!(mistakes(&shown, &[]), [""; 0]);
}

fn relay() -> impl Strategy<Value = Value> {
    let span = || {
        prop_oneof![
            (1_000..100_000_u64).prop_map(|ms| json!(format!("{ms}ms").parse::<TimeSpan>().unwrap())),
            (1..9_000_u64).prop_map(|s| json!(s))
        ]
    };
    (1..10_000_u64, any::<bool>(), span(), span(), span()).prop_map(|(depth, allow_mass_release, low, timeout, sweep)| {
        json!({
            "first_list_backlog": depth, "allow_mass_release": allow_mass_release, "retry_interval": low, "retry_max_interval": "9000s",
            "handler_timeout": timeout, "sweep_interval": sweep,
        })
    })
}

fn lamp() -> impl Strategy<Value = Value> {
    (0..=90_u8, "\\PC{8,20}", prop::collection::vec("\\PC{0,9}", 0..4)).prop_map(
        |(brightness, password, rooms)| json!({"brightness": brightness, "password": password, "rooms": rooms}),
    )
}

proptest! {
    #[test]
    fn valid_values_are_loaded_unchanged(relay in relay(), lamp in lamp()) {
        let file = json!({"relay": relay, "lamp": lamp});
        let configuration = load(&toml::to_string(&file).unwrap(), &[]).unwrap();
        for (section, options) in file.as_object().unwrap() {
            for (option, value) in options.as_object().unwrap() {
                prop_assert_eq!(&configuration.value[section][option], value);
            }
        }
        let typed: RelayOptions = serde_json::from_value(configuration.value["relay"].clone()).unwrap();
        prop_assert_eq!(&typed, &configuration.relay);

        let shown = configuration.show(&schema()).replace("\"(secret)\"", &toml::Value::from(lamp["password"].as_str().unwrap()).to_string());
        prop_assert_eq!(load(&shown, &[]).unwrap().value, configuration.value);
    }

    #[test]
    fn the_check_never_panics(text in "[\\[\\]a-c=\"'{}0-9.,#\n -]{0,60}") {
        let _ = mistakes(&text, &[]);
    }
}
