//! The configuration as a whole: from a file and an environment to mistakes or values.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use staffetta_handler::{Registry, SetupError};

use super::*;

trait Lamp: Send + Sync {}
struct Candle;
impl Lamp for Candle {}

/// How the lamp burns.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct LampOptions {
    /// How bright it is, in candelas.
    #[schemars(range(max = 90))]
    brightness: u8,
    /// The word that lights it.
    #[schemars(length(min = 8), extend("x-secret" = true))]
    password: Option<String>,
    /// Where it hangs.
    rooms: Vec<String>,
}

impl Default for LampOptions {
    fn default() -> Self {
        Self { brightness: 60, password: None, rooms: vec!["kitchen".to_owned()] }
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    for (name, about) in [("vif", "Plugs pods in."), ("lb", "Balances."), ("night", "Switches lamps.")] {
        registry.handler(name, about, |_| Err(SetupError::Invalid("a handler that is only named".to_owned())));
    }
    registry.interface::<dyn Lamp>("lamp", "candle", "What lights the way.");
    registry.driver::<dyn Lamp>("candle", "Wax and a wick.", |_| Ok(Arc::new(Candle)));
    registry.driver::<dyn Lamp>("torch", "A stick.", |_| Ok(Arc::new(Candle)));
    registry.section::<LampOptions>("lamp");
    registry
}

fn schema() -> FileSchema {
    FileSchema::assemble(&registry()).unwrap()
}

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Configuration, ConfigurationError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, text).unwrap();
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Configuration::load(&schema(), Some(&path), variables)
}

/// The mistakes, a line each, with the bare name of the file.
fn mistakes(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let mistakes = match load(text, variables) {
        Err(ConfigurationError::Mistakes(Mistakes(mistakes))) => mistakes,
        Err(other) => panic!("{other}"),
        Ok(_) => Vec::new(),
    };
    let bare = |mut mistake: Mistake| {
        if let Place::File { path, .. } = &mut mistake.place {
            *path = PathBuf::from("s.toml").into();
        }
        mistake.to_string()
    };
    mistakes.into_iter().map(bare).collect()
}

#[test]
fn without_file_and_environment_the_defaults_hold() {
    let configuration = Configuration::load(&schema(), None, []).unwrap();
    assert_eq!(configuration.relay, Relay::default());
    assert_eq!(configuration.kubernetes.enabled_handlers, ["vif", "lb"]);
    assert_eq!(configuration.value["kubernetes"]["lamp_driver"], "candle");
    assert_eq!(configuration.value["relay"]["retry_timeout"], "500s");
    assert_eq!(configuration.value["lamp"], json!({"brightness": 60, "password": null, "rooms": ["kitchen"]}));
}

#[test]
fn the_environment_goes_before_the_file_and_the_file_before_the_defaults() {
    let file = "[relay]\nqueue_depth = 7\nmax_concurrency = 3\nhandler_timeout = 5\n[lamp]\nrooms = ['a']";
    let variables = [
        ("STAFFETTA_RELAY__QUEUE_DEPTH", "8"),
        ("STAFFETTA_RELAY__COALESCE", "false"),
        ("STAFFETTA_RELAY__RETRY_INTERVAL", "250ms"),
        ("STAFFETTA_LAMP__ROOMS", "b, c"),
        ("STAFFETTA_KUBERNETES__ENABLED_HANDLERS", "[\"night\"]"),
        ("STAFFETTA_KUBERNETES__LAMP_DRIVER", "torch"),
    ];
    let configuration = load(file, &variables).unwrap();
    let relay = &configuration.relay;
    assert_eq!((relay.queue_depth.get(), relay.max_concurrency.get(), relay.coalesce), (8, 3, false));
    assert_eq!(relay.handler_timeout, Span::from_secs(5));
    assert_eq!(relay.retry_interval, Span::from_millis(250));
    assert_eq!(configuration.kubernetes.enabled_handlers, ["night"]);
    assert_eq!(configuration.value["kubernetes"]["lamp_driver"], "torch");
    assert_eq!(configuration.value["lamp"]["rooms"], json!(["b", "c"]));
}

#[test]
fn all_mistakes_of_a_file_are_found_at_once() {
    let file = r#"
queue_depth = 5
[kubernetes]
enabled_handlers = ["vif", "nihgt", "vif"]
cluster_id = "My Cluster"
lamp_driver = "touch"
[relay]
queue_dept = 7
max_concurrency = 0
handler_timeout = "soon"
retry_interval = "-1s"
retry_max_interval = "0s"
coalesce = "yes"
[rely]
[lamp]
brightness = 91
rooms = [1]
coalesce = true
[admin]
listen = "localhost:80"
[log]
format = "yaml"
level = "inof"
"#;
    let expected = [
        r#"s.toml:2:1: queue_depth: there is no such section; "queue_depth" is an option of [relay]"#,
        r#"s.toml:4:28: kubernetes.enabled_handlers[1]: there is no "nihgt" (did you mean "night"?); known are "lb", "night", "vif""#,
        r#"s.toml:4:37: kubernetes.enabled_handlers[2]: "vif" stands there twice"#,
        r#"s.toml:5:14: kubernetes.cluster_id: "My Cluster" is not made of lower-case letters, digits and inner hyphens"#,
        r#"s.toml:6:15: kubernetes.lamp_driver: there is no "touch" (did you mean "torch"?); known are "candle", "torch""#,
        r#"s.toml:8:1: relay.queue_dept: there is no such option; did you mean "queue_depth"?"#,
        r#"s.toml:9:19: relay.max_concurrency: must be at least 1, not 0"#,
        r#"s.toml:10:19: relay.handler_timeout: "soon" is not a length of time; write seconds, or units as in "500ms", "30s" or "2m30s""#,
        r#"s.toml:11:18: relay.retry_interval: "-1s" is negative"#,
        r#"s.toml:12:22: relay.retry_max_interval: must be at least 1ms, not 0s"#,
        r#"s.toml:13:12: relay.coalesce: must be true or false, not a string"#,
        r#"s.toml:14:2: rely: there is no such section; did you mean [relay]?"#,
        r#"s.toml:16:14: lamp.brightness: must be at most 90, not 91"#,
        r#"s.toml:17:10: lamp.rooms[0]: must be a string, not an integer"#,
        r#"s.toml:18:1: lamp.coalesce: there is no such option; it is an option of [relay]"#,
        r#"s.toml:20:10: admin.listen: "localhost:80" is not an IP address and a port, such as "127.0.0.1:8082" or "[::]:8082""#,
        r#"s.toml:22:10: log.format: there is no "yaml"; known are "text", "json""#,
        r#"s.toml:23:9: log.level: "inof" names a level that does not exist; did you mean "info"?"#,
    ];
    assert_eq!(mistakes(file, &[]), expected);
}

#[test]
fn all_mistakes_of_syntax_are_found_at_once_and_lead_to_no_others() {
    let found = mistakes("[relay]\nqueue_depth = \ncoalesce = true true\n[log]\nlevel = 'loud'\n", &[]);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].starts_with("s.toml:2:") && found[0].contains("this is not TOML"), "{found:#?}");
    assert!(found[1].starts_with("s.toml:3:") && found[1].contains("this is not TOML"), "{found:#?}");
    assert!(found[2].starts_with("s.toml:5:9: log.level"), "{found:#?}");
}

#[test]
fn a_name_that_stands_twice_is_refused_where_it_stands_again() {
    let found = mistakes("[relay]\nqueue_depth = 1\nqueue_depth = 2\n", &[]);
    assert_eq!(found, ["s.toml:3:1: this is not TOML: duplicate key"]);
}

#[test]
fn a_file_that_is_not_text_is_refused_where_it_stops_being_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, b"[relay]\nx = \xff").unwrap();
    let error = Configuration::load(&schema(), Some(&path), []).unwrap_err().to_string();
    assert!(error.contains("s.toml:2:5: this is not UTF-8"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Configuration::load(&schema(), Some(Path::new("/nowhere/s.toml")), []).unwrap_err();
    assert!(error.to_string().starts_with("cannot read the configuration /nowhere/s.toml: "), "{error}");
}

#[test]
fn mistakes_in_the_environment_name_the_variable() {
    let variables = [
        ("STAFFETTA_RELAY__QUEUE_DEPTH", "many"),
        ("STAFFETTA_RELAY__QUEUE_DEPHT", "7"),
        ("STAFFETTA_RELLAY__QUEUE_DEPTH", "7"),
        ("STAFFETTA_RELAY_COALESCE", "false"),
        ("STAFFETTA_KUBERNETES__ENABLED_HANDLERS", "vif,viff"),
    ];
    let expected = [
        r#"environment STAFFETTA_KUBERNETES__ENABLED_HANDLERS: kubernetes.enabled_handlers[1]: there is no "viff" (did you mean "vif"?); known are "lb", "night", "vif""#,
        "environment STAFFETTA_RELAY_COALESCE: sets nothing; write STAFFETTA_RELAY__COALESCE, with two underscores after the section",
        r#"environment STAFFETTA_RELAY__QUEUE_DEPHT: relay.queue_depht: there is no such option; did you mean "queue_depth"?"#,
        "environment STAFFETTA_RELAY__QUEUE_DEPTH: relay.queue_depth: must be an integer, not a string",
        "environment STAFFETTA_RELLAY__QUEUE_DEPTH: rellay: there is no such section; did you mean STAFFETTA_RELAY__...?",
    ];
    assert_eq!(mistakes("", &variables), expected);
}

#[test]
fn variables_that_are_no_options_are_left_alone() {
    let variables = [
        ("STAFFETTA_REQUIRE", "all"),
        ("STAFFETTA_CONFIG", "x.toml"),
        ("STAFFETTA_REAL_KUBERNETES", "1"),
        ("STAFFETTA_PORT_8082_TCP_ADDR", "10.0.0.1"),
        ("RELAY__QUEUE_DEPTH", "x"),
    ];
    assert_eq!(mistakes("", &variables), [""; 0]);
}

#[test]
fn options_that_contradict_each_other_are_refused_where_they_were_set() {
    let found = mistakes("[relay]\nretry_interval = '2m'\n", &[("STAFFETTA_RELAY__FAILED_RESYNC_MAX", "30")]);
    let expected = [
        "s.toml:2:18: relay.retry_interval: 2m is more than relay.retry_max_interval, which is 1m",
        "environment STAFFETTA_RELAY__FAILED_RESYNC_MAX: relay.failed_resync: 1m is more than relay.failed_resync_max, which is 30s",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_secret_is_neither_quoted_nor_shown() {
    let found = mistakes("[lamp]\npassword = 'hunter2'\n", &[]);
    assert_eq!(found, ["s.toml:2:12: lamp.password: must have at least 8 characters, not 7"]);
    let found = mistakes("", &[("STAFFETTA_LAMP__PASSWORD", "hunter2")]);
    assert!(!found.is_empty() && !found[0].contains("hunter2"), "{found:#?}");

    let configuration = load("[lamp]\npassword = 'open sesame'\n", &[]).unwrap();
    assert_eq!(configuration.value["lamp"]["password"], "open sesame");
    let shown = configuration.show(&schema());
    assert!(shown.contains("password = \"(secret)\"") && !shown.contains("sesame"), "{shown}");
}

#[test]
fn what_is_shown_names_the_origin_of_each_value() {
    let configuration = load("[relay]\nqueue_depth = 7\n", &[("STAFFETTA_LOG__FORMAT", "json")]).unwrap();
    let shown = configuration.show(&schema());
    let line = |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert!(line("queue_depth").starts_with("queue_depth = 7  # file "), "{shown}");
    assert!(line("queue_depth").ends_with("s.toml:2:15"), "{shown}");
    assert_eq!(line("format"), "format = \"json\"  # environment STAFFETTA_LOG__FORMAT");
    assert_eq!(line("retry_timeout"), "retry_timeout = \"500s\"  # default");
    assert_eq!(line("# kubeconfig"), "# kubeconfig is not set");
    assert_eq!(mistakes(&shown, &[]), [""; 0]);
}

#[test]
fn the_sample_passes_the_check_with_every_option_commented_out_and_with_every_option_set() {
    let sample = schema().sample();
    assert_eq!(mistakes(&sample, &[]), [""; 0]);

    let option = |line: &str| line.starts_with('#') && line[1..].starts_with(|first: char| first.is_ascii_lowercase());
    let set: Vec<&str> = sample.lines().map(|line| if option(line) { &line[1..] } else { line }).collect();
    let set = set.join("\n").replace("password = \"...\"", "password = \"12345678\"");
    let configuration = load(&set, &[]).unwrap();
    let options: usize = schema().sections.iter().map(|section| section.options.len()).sum();
    assert_eq!(configuration.origins.len(), options, "{set}");
    assert_eq!(configuration.relay, Relay::default());
}

#[test]
fn the_sample_tells_what_each_option_means_and_may_be() {
    let sample = schema().sample();
    for part in [
        "\n# How the lamp burns.\n[lamp]\n",
        "\n# How bright it is, in candelas.\n# From 0 to 90.\n#brightness = 60\n",
        "\n# What lights the way.\n# One of:\n# - \"candle\": Wax and a wick.\n# - \"torch\": A stick.\n#lamp_driver = \"candle\"\n",
        "# Any of:\n# - \"lb\": Balances.\n",
        "# Not set by default.\n#kubeconfig = \"/etc/staffetta/kubeconfig\"\n",
    ] {
        assert!(sample.contains(part), "{part}\n{sample}");
    }
    assert!(sample.lines().all(|line| line.chars().count() <= 100), "{sample}");
}

#[test]
fn the_schema_closes_every_section_and_names_handlers_and_drivers() {
    let schema = schema().to_json();
    for section in schema["properties"].as_object().unwrap().values() {
        assert_eq!(section["additionalProperties"], false);
    }
    let kubernetes = &schema["properties"]["kubernetes"]["properties"];
    assert_eq!(kubernetes["lamp_driver"]["oneOf"][1]["const"], "torch");
    assert_eq!(kubernetes["enabled_handlers"]["items"]["oneOf"].as_array().unwrap().len(), 3);
    assert_eq!(kubernetes["kubeconfig"]["type"], "string");
    assert_eq!(schema["properties"]["relay"]["properties"]["queue_depth"]["minimum"], 1);
}

#[test]
fn a_section_with_a_rule_that_nobody_checks_or_a_name_that_is_taken_is_refused() {
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Strange {
        #[schemars(extend("pattern" = "^a"))]
        word: String,
    }
    let mut strange = Registry::default();
    strange.section::<Strange>("strange");
    let error = FileSchema::assemble(&strange).unwrap_err().to_string();
    assert!(error.contains("strange") && error.contains("\"pattern\""), "{error}");

    let mut twice = Registry::default();
    twice.section::<LampOptions>("relay");
    assert!(matches!(FileSchema::assemble(&twice), Err(SchemaError::Ambiguous(name)) if name == "relay"));
}

fn relay() -> impl Strategy<Value = Value> {
    let span = || prop_oneof![(1_000..100_000_u64).prop_map(|ms| json!(Span::from_millis(ms))), (1..9_000_u64).prop_map(|s| json!(s))];
    (1..10_000_u64, any::<bool>(), span(), span(), span()).prop_map(|(depth, coalesce, low, timeout, sweep)| {
        json!({
            "queue_depth": depth, "coalesce": coalesce, "retry_interval": low, "retry_max_interval": "9000s",
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
    fn valid_values_come_out_as_they_went_in(relay in relay(), lamp in lamp()) {
        let file = json!({"relay": relay, "lamp": lamp});
        let configuration = load(&toml::to_string(&file).unwrap(), &[]).unwrap();
        for (section, options) in file.as_object().unwrap() {
            for (option, value) in options.as_object().unwrap() {
                prop_assert_eq!(&configuration.value[section][option], value);
            }
        }
        let typed: Relay = serde_json::from_value(configuration.value["relay"].clone()).unwrap();
        prop_assert_eq!(&typed, &configuration.relay);

        let shown = configuration.show(&schema()).replace("\"(secret)\"", &toml::Value::from(lamp["password"].as_str().unwrap()).to_string());
        prop_assert_eq!(load(&shown, &[]).unwrap().value, configuration.value);
    }

    #[test]
    fn no_text_makes_the_check_panic(text in "[\\[\\]a-c=\"'{}0-9.,#\n -]{0,60}") {
        let _ = mistakes(&text, &[]);
    }
}
