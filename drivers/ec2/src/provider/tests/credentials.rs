//! The credentials of the driver, from the servers that issue them.

use serde_json::json;
use wiremock::matchers::{body_string_contains, header, method, path};
use wiremock::{Mock, ResponseTemplate};

use super::*;

/// Credentials in the form of an agent, which expire in `minutes`.
fn agent(id: &str, minutes: i64) -> String {
    let expiry = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes);
    json!({ "Code": "Success", "AccessKeyId": id, "SecretAccessKey": "hunter2", "Token": "session", "Expiration": expiry.to_string() })
        .to_string()
}

#[tokio::test]
async fn the_role_of_the_instance_is_used_with_a_session_and_replaced_before_it_expires() {
    let endpoint = Endpoint::with(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", "URL")]).await;
    let server = &endpoint.server;
    let text = |text: &str| ResponseTemplate::new(200).set_body_string(text);
    Mock::given(method("PUT"))
        .and(path("/latest/api/token"))
        .and(header("x-aws-ec2-metadata-token-ttl-seconds", "300"))
        .respond_with(text("SESSION"))
        .mount(server)
        .await;
    let credentials = "/latest/meta-data/iam/security-credentials/";
    let get = |at: String| Mock::given(path(at)).and(header("x-aws-ec2-metadata-token", "SESSION"));
    get(credentials.to_owned()).respond_with(text("node-role")).mount(server).await;
    let of_role = || get(format!("{credentials}node-role"));
    of_role().respond_with(text(&agent("ASIA1", 3))).up_to_n_times(1).mount(server).await;
    of_role().respond_with(text(&agent("ASIA2", 60))).mount(server).await;
    endpoint.answer("DescribeSubnets", "", 200, SUBNETS).await;
    for _ in 0..3 {
        endpoint.driver.check().await.unwrap();
    }
    let requests = server.received_requests().await.unwrap();
    let signed = requests.iter().filter_map(|request| request.headers.get("authorization"));
    let keys: Vec<_> = signed.map(|header| header.to_str().unwrap()[28..33].to_owned()).collect();
    assert_eq!(keys, ["ASIA1", "ASIA2", "ASIA2"]);
}

#[tokio::test]
async fn keys_that_cannot_be_replaced_are_used_without_another_attempt_at_each_call() {
    let endpoint = Endpoint::with(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "URL/agent")]).await;
    let text = ResponseTemplate::new(200).set_body_string(agent("ASIA1", 3));
    Mock::given(path("/agent")).respond_with(text).up_to_n_times(1).mount(&endpoint.server).await;
    endpoint.answer("DescribeSubnets", "", 200, SUBNETS).await;
    for _ in 0..4 {
        endpoint.driver.check().await.unwrap();
    }
    let requests = endpoint.server.received_requests().await.unwrap();
    assert_eq!(requests.iter().filter(|request| request.url.path() == "/agent").count(), 2);
}

#[tokio::test]
async fn a_web_identity_is_exchanged_for_the_keys_of_its_role_once_even_if_they_are_refused_at_first() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "jwt\n").unwrap();
    let endpoint = Endpoint::with(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.path().to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_ENDPOINT_URL_STS", "URL/sts"),
    ])
    .await;
    let expiry = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(60);
    let sts = format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA1</AccessKeyId>\
         <SecretAccessKey>hunter2</SecretAccessKey><SessionToken>s</SessionToken><Expiration>{expiry}</Expiration></Credentials>\
         </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    );
    Mock::given(path("/sts"))
        .and(body_string_contains("WebIdentityToken=jwt"))
        .and(body_string_contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr"))
        .respond_with(ResponseTemplate::new(200).set_body_string(sts))
        .expect(1)
        .mount(&endpoint.server)
        .await;
    for (code, transient) in [("RequestExpired", true), ("AuthFailure", false)] {
        endpoint.answer_once("DescribeSubnets", 400, &error(code)).await;
        let failed = endpoint.driver.check().await.unwrap_err();
        assert_eq!(failed.transient(), transient);
        assert!(!format!("{failed:?}").contains("hunter2"), "{failed:?}");
    }
    endpoint.answer("DescribeSubnets", "", 200, SUBNETS).await;
    endpoint.driver.check().await.unwrap();
}

#[tokio::test]
async fn credentials_that_cannot_be_obtained_are_an_error_that_says_why_without_a_secret() {
    let endpoint = Endpoint::with(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "URL/agent")]).await;
    let body = "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"hunter2\"}";
    Mock::given(path("/agent"))
        .respond_with(ResponseTemplate::new(200).set_body_string(body))
        .up_to_n_times(1)
        .mount(&endpoint.server)
        .await;
    let failed = endpoint.driver.check().await.unwrap_err();
    assert!(failed.to_string().contains("does not contain credentials"), "{failed}");
    assert!(!format!("{failed:?}").contains("hunter2"));
    let failed = endpoint.driver.check().await.unwrap_err();
    assert!(failed.to_string().contains("HTTP status 404"), "{failed}");
}

/// The response of STS for a role.
fn role(id: &str) -> ResponseTemplate {
    let expiry = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(60);
    ResponseTemplate::new(200).set_body_string(format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials><AccessKeyId>{id}</AccessKeyId>\
         <SecretAccessKey>hunter2</SecretAccessKey><SessionToken>session-{id}</SessionToken><Expiration>{expiry}</Expiration></Credentials>\
         <AssumedRoleUser><Arn>a</Arn></AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>"
    ))
}

#[tokio::test]
async fn the_roles_of_a_profile_are_assumed_one_after_the_other_with_signed_requests() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    let text = "[profile base]\naws_access_key_id = AKIA1\naws_secret_access_key = hunter2\n\
        [profile inner]\nrole_arn = arn:inner\nsource_profile = base\nexternal_id = x\n\
        [profile outer]\nrole_arn = arn:outer\nsource_profile = inner\nduration_seconds = 900\n";
    std::fs::write(&config, text).unwrap();
    let endpoint = Endpoint::with(&[
        ("AWS_CONFIG_FILE", config.to_str().unwrap()),
        ("AWS_PROFILE", "outer"),
        ("AWS_ENDPOINT_URL_STS", "URL/sts"),
    ])
    .await;
    let sts = |arn: &str| Mock::given(path("/sts")).and(body_string_contains(format!("RoleArn={arn}&")));
    sts("arn%3Ainner")
        .and(body_string_contains("ExternalId=x"))
        .respond_with(role("ASIA1"))
        .expect(1)
        .mount(&endpoint.server)
        .await;
    sts("arn%3Aouter")
        .and(body_string_contains("DurationSeconds=900"))
        .and(header("x-amz-security-token", "session-ASIA1"))
        .respond_with(role("ASIA2"))
        .expect(1)
        .mount(&endpoint.server)
        .await;
    endpoint.answer("DescribeSubnets", "", 200, SUBNETS).await;
    for _ in 0..2 {
        endpoint.driver.check().await.unwrap();
    }
    let requests = endpoint.server.received_requests().await.unwrap();
    let scopes = requests.iter().map(|request| {
        let header = request.headers["authorization"].to_str().unwrap();
        let mut parts = header.split(['=', '/']).skip(1);
        (parts.next().unwrap().to_owned(), parts.nth(2).unwrap().to_owned())
    });
    let expected = [("AKIA1", "sts"), ("ASIA1", "sts"), ("ASIA2", "ec2"), ("ASIA2", "ec2")];
    assert_eq!(scopes.collect::<Vec<_>>(), expected.map(|(id, service)| (id.to_owned(), service.to_owned())));
}

#[tokio::test]
async fn a_role_that_may_not_be_assumed_is_an_error_with_the_reason_of_sts() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    let text = "[default]\naws_access_key_id = AKIA1\naws_secret_access_key = hunter2\nrole_arn = arn:r\nsource_profile = default\n";
    std::fs::write(&config, text).unwrap();
    let endpoint =
        Endpoint::with(&[("AWS_CONFIG_FILE", config.to_str().unwrap()), ("AWS_ENDPOINT_URL_STS", "URL/sts")])
            .await;
    let body = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>";
    Mock::given(path("/sts"))
        .respond_with(ResponseTemplate::new(403).set_body_string(body))
        .mount(&endpoint.server)
        .await;
    let failed = endpoint.driver.check().await.unwrap_err();
    assert!(failed.to_string().contains("AccessDenied: not you"), "{failed}");
    assert!(!format!("{failed:?}").contains("hunter2"));
}
