use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A temporary home directory with files.
struct Home(TempDir);

impl Home {
    fn new(files: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn environment(&self, cloud: Option<&str>) -> Environment {
        Environment {
            cloud: cloud.map(str::to_owned),
            folders: ["work", "user", "etc"].map(|folder| self.path(folder)).to_vec(),
            ..Environment::default()
        }
    }

    fn access(&self, cloud: &str) -> Result<Access, String> {
        access(&NeutronOptions::default(), &self.environment(Some(cloud)), self.0.path())
    }
}

/// Returns errors without the path of the temporary directory.
fn access(options: &NeutronOptions, environment: &Environment, home: &Path) -> Result<Access, String> {
    let reported = |error: AccessError| error.to_string().replace(&format!("{}/", home.display()), "");
    options.access(environment).map_err(reported)
}

fn section(options: &NeutronOptions) -> Result<Access, String> {
    options.access(&Environment::default()).map_err(|error| error.to_string())
}

fn by_password() -> NeutronOptions {
    NeutronOptions {
        auth_url: Some("https://k:5000/v3".into()),
        username: Some("kuryr".into()),
        password: Some("open sesame".into()),
        project_name: Some("k8s".into()),
        ..NeutronOptions::default()
    }
}

const CLOUDS: &str = "
clouds:
  prod:
    auth:
      auth_url: https://k:5000/v3
      username: kuryr
      password: 12345
      project_name: k8s
      user_domain_name: People
      project_domain_id: machines
    region_name: Two
    interface: internal
    verify: false
    cacert: /etc/ca.pem
    api_timeout: 7
    volume_api_version: 3
  app:
    auth_type: v3applicationcredential
    auth: { auth_url: http://k, application_credential_id: c1, application_credential_secret: s }
  empty:
";

fn named(name: &str, domain: IdOrName) -> DomainResource {
    DomainResource { key: IdOrName::Name(name.into()), domain: Some(domain) }
}

fn by_id(id: &str) -> DomainResource {
    DomainResource { key: IdOrName::Id(id.into()), domain: None }
}

fn opened(auth: &Auth) -> (String, String) {
    match auth {
        Auth::None => ("none".into(), String::new()),
        Auth::Password { url, password, .. } => (url.to_string(), password.reveal().unwrap()),
        Auth::ApplicationCredential { url, secret, .. } => (url.to_string(), secret.reveal().unwrap()),
    }
}

#[test]
fn a_cloud_is_reached_as_clouds_yaml_says() {
    let home = Home::new(&[("user/clouds.yaml", CLOUDS)]);
    let access = home.access("prod").unwrap();
    assert_eq!(opened(&access.auth), ("https://k:5000/v3".into(), "12345".into()));
    let Auth::Password { user, scope, .. } = &access.auth else { panic!("{:?}", access.auth) };
    assert_eq!(*user, named("kuryr", IdOrName::Name("People".into())));
    assert_eq!(*scope, named("k8s", IdOrName::Id("machines".into())));
    assert_eq!((access.region.as_deref(), access.interface), (Some("Two"), EndpointInterface::Internal));
    let tls = TlsOptions { insecure: true, ca_file: Some("/etc/ca.pem".into()), ..TlsOptions::default() };
    assert_eq!((access.tls, access.timeout), (tls, Duration::from_secs(7)));
    let access = home.access("app").unwrap();
    assert_eq!(opened(&access.auth), ("http://k/".into(), "s".into()));
    assert!(!access.tls.insecure);
}

#[test]
fn the_first_file_is_taken_and_the_named_one_before_all() {
    let cloud = |user: &str| CLOUDS.replace("12345", user);
    let home = Home::new(&[
        ("etc/clouds.yaml", &cloud("etc")),
        ("user/clouds.yml", &cloud("user")),
        ("named.yaml", &cloud("named")),
    ]);
    assert_eq!(opened(&home.access("prod").unwrap().auth).1, "user");
    let mut environment = home.environment(Some("prod"));
    environment.config_file = Some(home.path("named.yaml"));
    let access = NeutronOptions::default().access(&environment).unwrap();
    assert_eq!(opened(&access.auth).1, "named");
    environment.config_file = Some(home.path("none.yaml"));
    let error = tests::access(&NeutronOptions::default(), &environment, home.0.path()).unwrap_err();
    assert_eq!(error, "none.yaml: is named by the environment and does not exist");
}

#[test]
fn a_secure_file_stands_above_and_a_profile_below() {
    let home = Home::new(&[
        (
            "user/clouds.yaml",
            "clouds: {a: {profile: acme, auth: {username: me, password: shown, project_name: p}}}",
        ),
        ("etc/secure.yaml", "clouds: {a: {auth: {password: hidden}}, other: null}"),
        (
            "etc/clouds-public.yaml",
            "public-clouds: {acme: {auth: {auth_url: 'http://acme', username: nobody}, region_name: R}}",
        ),
    ]);
    let access = home.access("a").unwrap();
    assert_eq!(opened(&access.auth), ("http://acme/".into(), "hidden".into()));
    assert_eq!(access.region.as_deref(), Some("R"));
    assert!(matches!(access.auth, Auth::Password { user, .. } if user.key == IdOrName::Name("me".into())));
}

#[test]
fn a_default_domain_is_that_of_user_and_project() {
    for (given, expected) in [
        ("default_domain: d1", IdOrName::Id("d1".into())),
        ("auth_type: password", IdOrName::Id("default".into())),
    ] {
        let text = format!(
            "clouds: {{a: {{auth: {{auth_url: 'http://k', username: u, password: p, project_name: q}}, {given}}}}}"
        );
        let access = Home::new(&[("work/clouds.yaml", &text)]).access("a").unwrap();
        let Auth::Password { user, scope, .. } = access.auth else { panic!("{:?}", access.auth) };
        assert_eq!((user.domain, scope.domain), (Some(expected.clone()), Some(expected)));
    }
}

#[test]
fn mistakes_in_clouds_yaml_are_reported_with_their_place_and_without_secrets() {
    let cases = [
        ("clouds:\n  a:\n    auth: [", "work/clouds.yaml:3:"),
        ("clouds:\n  a:\n    verify: perhaps\n", "work/clouds.yaml:3:13: "),
        (
            "clouds:\n  a:\n    auth:\n      auth_url: k:5000\n      username: u\n      password: hidden\n      project_name: p\n",
            "work/clouds.yaml:4:17: is not a URL of the form https://HOST:PORT/PATH",
        ),
        (
            "clouds:\n  a:\n    auth:\n      auth_url: http://k\n      password: hidden\n      project_name: p\n",
            "work/clouds.yaml:3:5: clouds.a: username: is missing",
        ),
        (
            "clouds:\n  a:\n    auth:\n      auth_url: http://k\n      username: u\n      password: hidden\n",
            "work/clouds.yaml:3:5: clouds.a: project_name: is missing: a login without a project has no catalogue",
        ),
        (
            "clouds:\n  a:\n    interface: outer\n",
            "work/clouds.yaml:3:16: there is no interface \"outer\"; known are",
        ),
        (
            "clouds:\n  a:\n    auth_type: v3totp\n",
            "work/clouds.yaml:3:16: the login method \"v3totp\" is not supported; known are",
        ),
        ("clouds:\n  a:\n    key: k.pem\n", "certfile: is required, because `keyfile` is set"),
        ("clouds:\n  a:\n    api_timeout: 0\n", "work/clouds.yaml:3:18: is not between 1 and 3600 seconds"),
        (
            "clouds:\n  a:\n    api_timeout: 3601\n",
            "work/clouds.yaml:3:18: is not between 1 and 3600 seconds",
        ),
        (
            "clouds:\n  a:\n    interface: internal\n    network_interface: public\n",
            "work/clouds.yaml:4:24: \"public\" is for one service only; one `interface` is for all",
        ),
        (
            "clouds:\n  a:\n    load_balancer_region_name: Two\n",
            "work/clouds.yaml:3:32: \"Two\" is for one service only; one `region_name` is for all",
        ),
        ("clouds: {b: {}}", "work/clouds.yaml: there is no cloud \"a\"; known are \"b\""),
        ("clouds:\n  a:\n    profile: nowhere\n", "work/clouds.yaml:3:14: there is no profile \"nowhere\""),
        (
            "clouds:\n  a:\n    auth:\n      password: hidden\n      username: [hidden]\n",
            "work/clouds.yaml:5:",
        ),
    ];
    for (text, expected) in cases {
        let error = Home::new(&[("work/clouds.yaml", text)]).access("a").unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
        assert!(!error.contains("hidden") && !error.contains('\n'), "{error}");
    }
    let error = Home::new(&[]).access("a").unwrap_err();
    assert_eq!(error, "clouds.yaml: is needed for the cloud \"a\" and is not in work, user, etc");
}

#[test]
fn what_is_said_of_one_service_and_is_true_of_all_is_taken() {
    let text = "clouds: {a: {auth: {auth_url: 'http://k', username: u, password: p, project_name: q}, region_name: Two,
        interface: internal, network_interface: internalURL, load_balancer_region_name: Two}}";
    let access = Home::new(&[("work/clouds.yaml", text)]).access("a").unwrap();
    assert_eq!((access.region.as_deref(), access.interface), (Some("Two"), EndpointInterface::Internal));
}

#[test]
fn the_folder_of_the_user_may_be_written_as_in_a_shell() {
    let text = "clouds: {a: {auth: {auth_url: 'http://k', username: u, password: p, project_name: q}, \
        cacert: '~/ca.pem', cert: '~/tls/us.pem', key: /etc/~/key.pem}}";
    let home = Home::new(&[("work/clouds.yaml", text)]);
    let environment = Environment { home: Some("/home/kuryr".into()), ..home.environment(Some("a")) };
    let tls = access(&NeutronOptions::default(), &environment, home.0.path()).unwrap().tls;
    let expected = TlsOptions {
        insecure: false,
        ca_file: Some("/home/kuryr/ca.pem".into()),
        certificate_file: Some("/home/kuryr/tls/us.pem".into()),
        key_file: Some("/etc/~/key.pem".into()),
    };
    assert_eq!(tls, expected);
}

#[test]
fn all_mistakes_of_clouds_yaml_are_reported_at_once() {
    let text = "clouds:\n  a:\n    interface: outer\n    key: k.pem\n    network_endpoint_override: n:9696\n    auth:\n      \
                auth_url: k:5000\n      project_name: p\n";
    let error = Home::new(&[("work/clouds.yaml", text)]).access("a").unwrap_err();
    let reported: Vec<_> =
        error.split("; work/").map(|reported| reported.trim_start_matches("work/")).collect();
    let expected = [
        "clouds.yaml:5:32: is not a URL",
        "clouds.yaml:3:16: there is no interface \"outer\"; known are",
        "clouds.yaml:3:5: clouds.a: certfile: is required",
        "clouds.yaml:7:17: is not a URL",
        "clouds.yaml:3:5: clouds.a: username: is missing",
        "clouds.yaml:3:5: clouds.a: password: is missing",
    ];
    assert_eq!(reported.len(), expected.len(), "{reported:#?}");
    for (reported, expected) in reported.iter().zip(expected) {
        assert!(reported.starts_with(expected), "{reported}\n{expected}");
    }
}

#[test]
fn the_section_has_the_names_of_kuryr_conf() {
    let access = section(&by_password()).unwrap();
    assert_eq!(opened(&access.auth), ("https://k:5000/v3".into(), "open sesame".into()));
    let named: NeutronOptions = serde_json::from_value(serde_json::json!({
        "auth_type": "v3applicationcredential", "auth_url": "http://k", "application_credential_name": "c",
        "username": "u", "user_domain_name": "D", "application_credential_secret": "s", "endpoint_type": "publicURL",
    }))
    .unwrap();
    let access = section(&named).unwrap();
    assert_eq!((opened(&access.auth).1.as_str(), access.interface), ("s", EndpointInterface::Public));
    let none = NeutronOptions {
        auth_type: Some("none".into()),
        endpoint_override: Some("http://n:9696".into()),
        ..NeutronOptions::default()
    };
    assert!(matches!(section(&none).unwrap().auth, Auth::None));
}

#[test]
fn mistakes_in_the_section_name_the_option() {
    type Case = (fn(&mut NeutronOptions), &'static str);
    let wrong = |change: fn(&mut NeutronOptions)| {
        let mut options = by_password();
        change(&mut options);
        section(&options).unwrap_err()
    };
    let cases: [Case; 8] = [
        (
            |options| options.auth_url = None,
            "neutron.auth_url: is missing, and neither neutron.cloud nor $OS_CLOUD",
        ),
        (|options| options.username = None, "neutron.username: is missing"),
        (|options| options.password = None, "neutron.password: is missing"),
        (|options| options.password_file = Some("p".into()), "neutron.password_file: only one of this and"),
        (
            |options| options.auth_url = Some("http://me:secret@k".into()),
            "neutron.auth_url: must contain only a host, a port and a path, without user or query",
        ),
        (
            |options| options.auth_type = Some("none".into()),
            "neutron.endpoint_override: is required with `auth_type",
        ),
        (
            |options| options.cloud = Some("prod".into()),
            "neutron.auth_url: only one of this and neutron.cloud",
        ),
        (
            |options| options.endpoint_type = Some("out".into()),
            "neutron.endpoint_type: there is no interface",
        ),
    ];
    for (change, expected) in cases {
        let error = wrong(change);
        assert!(error.starts_with(expected) && !error.contains("secret"), "{error}");
    }
}

#[test]
fn options_that_concern_the_way_stand_above_clouds_yaml() {
    let home = Home::new(&[("user/clouds.yaml", CLOUDS)]);
    let options = NeutronOptions {
        cloud: Some("prod".into()),
        region_name: Some("One".into()),
        insecure: Some(false),
        timeout: Some(3),
        ..NeutronOptions::default()
    };
    let access = access(&options, &home.environment(Some("app")), home.0.path()).unwrap();
    assert_eq!((access.region.as_deref(), access.tls.insecure), (Some("One"), false));
    assert_eq!((access.timeout, access.interface), (Duration::from_secs(3), EndpointInterface::Internal));
    let wrong = NeutronOptions { endpoint_type: Some("out".into()), ..options };
    let error = tests::access(&wrong, &home.environment(None), home.0.path()).unwrap_err();
    assert!(error.starts_with("neutron.endpoint_type: there is no interface"), "{error}");
}

#[test]
fn an_option_stands_above_those_of_clouds_yaml_whose_place_it_takes() {
    let home = Home::new(&[("user/clouds.yaml", CLOUDS)]);
    let beside = |cloud: &str, options: NeutronOptions| {
        let options = NeutronOptions { cloud: Some(cloud.into()), ..options };
        access(&options, &home.environment(None), home.0.path()).unwrap().auth
    };
    let other = NeutronOptions {
        password_file: Some("/etc/password".into()),
        project_id: Some("p1".into()),
        user_domain_id: Some("d1".into()),
        ..NeutronOptions::default()
    };
    let Auth::Password { user, password, scope, .. } = beside("prod", other) else { panic!("by password") };
    assert_eq!(user, named("kuryr", IdOrName::Id("d1".into())), "in another domain");
    assert_eq!((password.file(), scope), (Some(Path::new("/etc/password")), by_id("p1")));
    let named = NeutronOptions {
        application_credential_name: Some("c".into()),
        user_id: Some("u1".into()),
        ..NeutronOptions::default()
    };
    let Auth::ApplicationCredential { credential, .. } = beside("app", named) else {
        panic!("by credential")
    };
    assert_eq!(credential, Credential { key: IdOrName::Name("c".into()), user: Some(by_id("u1")) });
}

#[test]
fn what_has_no_part_in_a_login_is_refused_by_name() {
    let home = Home::new(&[("user/clouds.yaml", CLOUDS)]);
    let by_credential = [
        "username",
        "user_id",
        "password",
        "password_file",
        "project_name",
        "project_id",
        "user_domain_name",
        "user_domain_id",
        "project_domain_name",
        "project_domain_id",
    ];
    let by_password = [
        "application_credential_id",
        "application_credential_name",
        "application_credential_secret",
        "application_credential_secret_file",
    ];
    let by_credential = by_credential.map(|option| ("app", "v3applicationcredential", option));
    let by_password = by_password.map(|option| ("prod", "password", option));
    for (cloud, auth_type, option) in by_credential.into_iter().chain(by_password) {
        let options = serde_json::json!({ "cloud": cloud, "auth_type": auth_type, option: "hidden" });
        let options = serde_json::from_value(options).unwrap();
        let error = access(&options, &home.environment(None), home.0.path()).unwrap_err();
        assert!(
            error.starts_with(&format!("neutron.{option}: does not apply to the login method")),
            "{error}"
        );
        assert!(error.ends_with(auth_type) && !error.contains("hidden"), "{error}");
    }
    let both = NeutronOptions {
        application_credential_id: Some("c1".into()),
        application_credential_secret: Some("hidden".into()),
        ..tests::by_password()
    };
    let unused =
        |option| format!("neutron.{option}: does not apply to the login method v3applicationcredential");
    assert_eq!(section(&both).unwrap_err(), ["password", "project_name"].map(unused).join("; "));
}

#[test]
fn without_a_cloud_an_id_and_a_name_may_both_be_given_and_the_id_wins() {
    let both = NeutronOptions {
        user_id: Some("u1".into()),
        user_domain_name: Some("Default".into()),
        user_domain_id: Some("default".into()),
        project_id: Some("p1".into()),
        project_domain_id: Some("default".into()),
        ..by_password()
    };
    let Auth::Password { user, scope, .. } = section(&both).unwrap().auth else { panic!("by password") };
    assert_eq!((user, scope), (by_id("u1"), by_id("p1")));
    let other = NeutronOptions { application_credential_secret: Some("hidden".into()), ..both };
    let error = section(&other).unwrap_err();
    let expected = "neutron.application_credential_secret: does not apply to the login method password";
    assert_eq!(error, expected);
}

#[test]
fn nothing_secret_is_shown() {
    let shown = format!("{:?}", section(&by_password()).unwrap());
    assert!(!shown.contains("open sesame") && shown.contains("kuryr"), "{shown}");
    assert!(!format!("{:?}", by_password()).contains("open sesame"));
}

/// Shows the access of a section with its secrets.
fn revealed(options: &serde_json::Value, environment: &Environment) -> String {
    let options: NeutronOptions = serde_json::from_value(options.clone()).unwrap();
    let access = options.access(environment).unwrap_or_else(|error| panic!("{options:?}: {error}"));
    let secret = match &access.auth {
        Auth::None => None,
        Auth::Password { password: secret, .. } | Auth::ApplicationCredential { secret, .. } => Some(secret),
    };
    let text = secret.filter(|secret| secret.file().is_none()).map(|secret| secret.reveal().unwrap());
    format!("{access:?} {text:?}")
}

#[test]
fn every_option_of_the_section_changes_how_the_cloud_is_reached() {
    const PASSWORD: &str =
        r#"{ "auth_url": "https://k", "username": "u", "password": "p", "project_name": "q" }"#;
    const CREDENTIAL: &str = r#"{ "auth_type": "v3applicationcredential", "auth_url": "https://k", "username": "u",
        "application_credential_name": "c", "application_credential_secret": "s" }"#;
    let alone = Environment::default();
    // The option, what it is added to, its value, and what cannot stand beside it.
    let cases: [(&str, &str, serde_json::Value, &[&str]); 25] = [
        (
            "auth_type",
            r#"{ "auth_url": "https://k", "username": "u", "password": "p", "project_name": "q",
            "endpoint_override": "http://n" }"#,
            "none".into(),
            &[],
        ),
        ("auth_url", PASSWORD, "https://other".into(), &[]),
        ("username", PASSWORD, "other".into(), &[]),
        ("user_id", PASSWORD, "other".into(), &["username"]),
        ("password", PASSWORD, "other".into(), &[]),
        ("password_file", PASSWORD, "/etc/password".into(), &["password"]),
        ("project_name", PASSWORD, "other".into(), &[]),
        ("project_id", PASSWORD, "other".into(), &["project_name"]),
        ("user_domain_name", PASSWORD, "other".into(), &[]),
        ("user_domain_id", PASSWORD, "other".into(), &[]),
        ("project_domain_name", PASSWORD, "other".into(), &[]),
        ("project_domain_id", PASSWORD, "other".into(), &[]),
        (
            "application_credential_id",
            CREDENTIAL,
            "other".into(),
            &["application_credential_name", "username"],
        ),
        ("application_credential_name", CREDENTIAL, "other".into(), &[]),
        ("application_credential_secret", CREDENTIAL, "other".into(), &[]),
        (
            "application_credential_secret_file",
            CREDENTIAL,
            "/etc/s".into(),
            &["application_credential_secret"],
        ),
        ("region_name", PASSWORD, "other".into(), &[]),
        ("endpoint_type", PASSWORD, "internal".into(), &[]),
        ("endpoint_override", PASSWORD, "http://other".into(), &[]),
        ("load_balancer_endpoint_override", PASSWORD, "http://other".into(), &[]),
        ("cafile", PASSWORD, "/etc/ca.pem".into(), &[]),
        ("certfile", PASSWORD, "/etc/c.pem".into(), &[]),
        ("insecure", PASSWORD, true.into(), &[]),
        ("timeout", PASSWORD, 7.into(), &[]),
        ("max_concurrency", PASSWORD, 3.into(), &[]),
    ];
    for (option, base, value, beside) in &cases {
        let before: serde_json::Value = serde_json::from_str(base).unwrap();
        let mut after = before.clone();
        beside.iter().for_each(|name| drop(after.as_object_mut().unwrap().remove(*name)));
        after[*option] = value.clone();
        assert_ne!(revealed(&before, &alone), revealed(&after, &alone), "{option}");
        if *option == "auth_url" {
            continue;
        }
        let said = serde_json::json!({ "clouds": { "a": { "auth": before.clone(), "auth_type": before["auth_type"].clone(),
            "network_endpoint_override": before["endpoint_override"].clone() } } });
        let home = Home::new(&[("work/clouds.yaml", &said.to_string())]);
        let beside = |options: &serde_json::Value| revealed(options, &home.environment(Some("a")));
        let above = serde_json::json!({ "cloud": "a", *option: value.clone() });
        assert_ne!(beside(&serde_json::json!({})), beside(&above), "{option} beside a cloud");
    }
    let with_key = |key: &str| {
        let mut options: serde_json::Value = serde_json::from_str(PASSWORD).unwrap();
        options["certfile"] = "/etc/c.pem".into();
        options["keyfile"] = key.into();
        revealed(&options, &alone)
    };
    assert_ne!(with_key("/etc/one.pem"), with_key("/etc/other.pem"));
    // Of a cloud by its name, others tell.
    let all = serde_json::to_value(NeutronOptions::default()).unwrap();
    let mut reported: Vec<_> = cases.iter().map(|(option, ..)| *option).chain(["cloud", "keyfile"]).collect();
    reported.sort_unstable();
    let mut all: Vec<_> = all.as_object().unwrap().keys().map(String::as_str).collect();
    all.sort_unstable();
    assert_eq!(reported, all);
}
