//! Tests of mistakes in the file and in the environment.

use std::path::Path;

use serde::de::DeserializeOwned;

use super::*;

#[test]
fn all_mistakes_of_a_file_are_reported_at_once() {
    let file = r#"
first_list_backlog = 5
[kubernetes]
enabled_handlers = ["vif", "nihgt", "vif"]
cluster_id = "My Cluster"
lamp_driver = "touch"
[relay]
first_list_backlo = 7
max_concurrency = 0
handler_timeout = "soon"
retry_interval = "-1s"
retry_max_interval = "0s"
allow_mass_release = "yes"
[rely]
[lamp]
brightness = 91
rooms = [1]
allow_mass_release = true
[admin]
listen = "localhost:80"
[log]
format = "yaml"
level = "inof"
"#;
    let expected = [
        r#"s.toml:2:1: first_list_backlog: there is no such section; "first_list_backlog" is an option of [relay]"#,
        r#"s.toml:4:28: kubernetes.enabled_handlers[1]: there is no "nihgt" (did you mean "night"?); known are "lb", "night", "vif""#,
        r#"s.toml:4:37: kubernetes.enabled_handlers[2]: "vif" is listed twice"#,
        r#"s.toml:5:14: kubernetes.cluster_id: "My Cluster" is not made of lower-case letters, digits and inner hyphens"#,
        r#"s.toml:6:15: kubernetes.lamp_driver: there is no "touch" (did you mean "torch"?); known are "candle", "torch""#,
        r#"s.toml:8:1: relay.first_list_backlo: there is no such option; did you mean "first_list_backlog"?"#,
        "s.toml:9:19: relay.max_concurrency: must be at least 1, not 0",
        r#"s.toml:10:19: relay.handler_timeout: not a length of time; write seconds, or units as in "500ms", "30s" or "2m30s""#,
        "s.toml:11:18: relay.retry_interval: must be from 0s to 8784h",
        "s.toml:12:22: relay.retry_max_interval: must be at least 1ms, not 0s",
        r#"s.toml:13:22: relay.allow_mass_release: invalid type: string "yes", expected a boolean"#,
        "s.toml:14:2: rely: there is no such section; did you mean [relay]?",
        "s.toml:16:14: lamp.brightness: must be at most 90, not 91",
        "s.toml:17:10: lamp.rooms[0]: invalid type: integer `1`, expected a string",
        r#"s.toml:18:1: lamp.allow_mass_release: there is no such option; "allow_mass_release" is an option of [relay]"#,
        r#"s.toml:20:10: admin.listen: "localhost:80" is not an IP address and a port, such as "127.0.0.1:8082" or "[::]:8082""#,
        r#"s.toml:22:10: log.format: there is no "yaml"; known are "text", "json""#,
        r#"s.toml:23:9: log.level: "inof" names a level that does not exist; did you mean "info"?"#,
    ];
    assert_eq!(mistakes(file, &[]), expected);
}

#[test]
fn a_wrong_entry_of_a_table_is_not_also_reported_as_missing() {
    let found = mistakes("[[lamp.bulbs]]\nsocket = 27\nwatts = 60\n[[lamp.bulbs]]\nsocket = 'E27'\n", &[]);
    assert_eq!(found, ["s.toml:2:10: lamp.bulbs[0].socket: invalid type: integer `27`, expected a string"]);
    let found = mistakes("[[lamp.bulbs]]\nsocket = 'E27'\n", &[]);
    assert_eq!(found, ["s.toml:1:1: lamp.bulbs[0]: missing field `watts`"]);
}

#[test]
fn a_table_in_the_place_of_a_text_is_reported_with_the_form_of_the_text() {
    let found = mistakes("[kubernetes]\nobject_labels = { tier = \"web\" }\n", &[]);
    let expected = r#"s.toml:2:17: kubernetes.object_labels: must be a label selector, such as "team=net,env in (a,b),!legacy", not a table"#;
    assert_eq!(found, [expected]);
}

#[test]
fn all_syntax_errors_are_reported_at_once_and_no_errors_that_follow_from_them() {
    let found = mistakes(
        "[relay]\nfirst_list_backlog = \nallow_mass_release = true true\n[log]\nlevel = 'loud'\n[admin\nlisten = 1\n",
        &[],
    );
    assert_eq!(found.len(), 3, "{found:#?}");
    for (mistake, line) in found.iter().zip([2, 3, 6]) {
        assert!(
            mistake.starts_with(&format!("s.toml:{line}:")) && mistake.contains("this is not TOML"),
            "{found:#?}"
        );
    }
}

#[test]
fn a_duplicate_key_is_rejected_at_its_second_location() {
    let found = mistakes("[relay]\nfirst_list_backlog = 1\nfirst_list_backlog = 2\n", &[]);
    assert_eq!(found, ["s.toml:3:1: this is not TOML: duplicate key"]);
}

#[test]
fn a_file_that_is_not_utf_8_is_rejected_at_the_first_invalid_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, b"[relay]\nx = \xff").unwrap();
    let error = Configuration::load(&schema(), Some(&path), []).unwrap_err().to_string();
    assert!(error.contains("s.toml:2:5: this is not UTF-8"), "{error}");
}

#[test]
fn the_error_about_a_missing_file_names_the_file() {
    let error = Configuration::load(&schema(), Some(Path::new("/nowhere/s.toml")), []).unwrap_err();
    assert!(error.to_string().starts_with("cannot read the configuration file /nowhere/s.toml: "), "{error}");
}

#[test]
fn mistakes_in_the_environment_name_the_variable() {
    let variables = [
        ("STAFFETTA_RELAY__FIRST_LIST_BACKLOG", "many"),
        ("STAFFETTA_RELAY__FIRST_LIST_BACKLGO", "7"),
        ("STAFFETTA_RELLAY__FIRST_LIST_BACKLOG", "7"),
        ("STAFFETTA_RELAY_ALLOW_MASS_RELEASE", "false"),
        ("STAFFETTA_KUBERNETES__ENABLED_HANDLERS", "vif,viff"),
    ];
    let expected = [
        r#"environment STAFFETTA_KUBERNETES__ENABLED_HANDLERS: kubernetes.enabled_handlers[1]: there is no "viff" (did you mean "vif"?); known are "lb", "night", "vif""#,
        "environment STAFFETTA_RELAY_ALLOW_MASS_RELEASE: sets nothing; write STAFFETTA_RELAY__ALLOW_MASS_RELEASE, with two underscores after the section",
        r#"environment STAFFETTA_RELAY__FIRST_LIST_BACKLGO: relay.first_list_backlgo: there is no such option; did you mean "first_list_backlog"?"#,
        "environment STAFFETTA_RELAY__FIRST_LIST_BACKLOG: relay.first_list_backlog: invalid type: string \"many\", expected a whole number of at least 1",
        "environment STAFFETTA_RELLAY__FIRST_LIST_BACKLOG: rellay: there is no such section; did you mean [relay]?",
    ];
    assert_eq!(mistakes("", &variables), expected);
}

#[test]
fn variables_that_are_no_options_are_ignored() {
    let variables = [
        ("STAFFETTA_REQUIRE", "all"),
        ("STAFFETTA_CONFIG", "x.toml"),
        ("STAFFETTA_REAL_KUBERNETES", "1"),
        ("STAFFETTA_PORT_8082_TCP_ADDR", "10.0.0.1"),
        ("RELAY__FIRST_LIST_BACKLOG", "x"),
    ];
    assert_eq!(mistakes("", &variables), [""; 0]);
}

#[test]
fn contradicting_options_are_rejected_at_the_location_that_sets_them() {
    let found = mistakes("[relay]\nretry_interval = '2m'\n", &[("STAFFETTA_RELAY__FAILED_RESYNC_MAX", "30")]);
    let expected = [
        "s.toml:2:18: relay.retry_interval: 2m is more than relay.retry_max_interval, which is 1m",
        "environment STAFFETTA_RELAY__FAILED_RESYNC_MAX: relay.failed_resync: 1m is more than relay.failed_resync_max, which is 30s",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_leader_that_would_outlive_its_lease_or_renew_it_too_late_is_rejected() {
    let found = mistakes(
        "[leader_election]\nrenew_deadline = '15s'\n",
        &[("STAFFETTA_LEADER_ELECTION__RETRY_PERIOD", "20s")],
    );
    let expected = [
        "s.toml:2:18: leader_election.renew_deadline: 15s is not less than leader_election.lease_duration, which is 15s",
        "environment STAFFETTA_LEADER_ELECTION__RETRY_PERIOD: leader_election.retry_period: 20s is not less than leader_election.renew_deadline, which is 15s",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_secret_is_neither_in_a_message_nor_shown() {
    let found = mistakes("[lamp]\npassword = 'hunter2'\n", &[]);
    assert_eq!(found, ["s.toml:2:12: lamp.password: length must be at least 8"]);
    let found = mistakes("", &[("STAFFETTA_LAMP__PASSWORD", "hunter2")]);
    assert!(!found.is_empty() && !found[0].contains("hunter2"), "{found:#?}");

    let configuration = load("[lamp]\npassword = 'open sesame'\n", &[]).unwrap();
    assert_eq!(configuration.value["lamp"]["password"], "open sesame");
    let shown = configuration.show(&schema());
    assert!(shown.contains("password = \"(secret)\"") && !shown.contains("sesame"), "{shown}");
    let debugged = format!("{configuration:?}");
    assert!(debugged.contains("password") && !debugged.contains("sesame"), "{debugged}");
}

#[test]
fn a_part_of_an_option_cannot_be_secret() {
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Door {
        #[schemars(extend("x-secret" = true))]
        code: String,
    }
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct InATable {
        door: Door,
    }
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct InAList {
        doors: Vec<Door>,
    }
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    #[schemars(extend("x-secret" = true))]
    struct AllOfIt {
        word: String,
    }
    fn refused<T: DeserializeOwned + Serialize + JsonSchema + Default>() -> String {
        let mut registry = registry();
        registry.section::<T>("house");
        FileSchema::assemble(&registry).unwrap_err().to_string()
    }
    let refusals = [
        ("`house` cannot be checked: `door`", refused::<InATable>()),
        ("`house` cannot be checked: `doors`", refused::<InAList>()),
        ("`house`", refused::<AllOfIt>()),
    ];
    for (place, error) in refusals {
        assert!(
            error.contains(place) && error.contains("only an option as a whole can be secret"),
            "{error}"
        );
    }
}

#[test]
fn a_registry_whose_sections_form_no_schema_is_rejected() {
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Strange {
        #[schemars(extend("pattern" = "^a"))]
        word: String,
    }
    let mut strange = registry();
    strange.section::<Strange>("strange");
    let error = FileSchema::assemble(&strange).unwrap_err().to_string();
    assert!(error.contains("strange") && error.contains("\"pattern\""), "{error}");

    let mut twice = registry();
    twice.section::<LampOptions>("relay");
    let error = FileSchema::assemble(&twice).unwrap_err().to_string();
    assert_eq!(error, "two sections have the name `relay`");
}
