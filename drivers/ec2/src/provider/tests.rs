mod credentials;

use std::time::Duration;

use staffetta_driver::{NoopRequestObserver, RequestLog};
use wiremock::matchers::{body_string_contains, header_exists, method};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::*;
use crate::environment::AwsEnvironment;
use crate::options::Ec2Options;

/// A server in the place of EC2, and the driver.
struct Endpoint {
    server: MockServer,
    driver: Ec2Prefixes,
}

impl Endpoint {
    async fn new() -> Self {
        Self::with(&[("AWS_ACCESS_KEY_ID", "AKIA1"), ("AWS_SECRET_ACCESS_KEY", "hunter2")]).await
    }

    /// URL in a value stands for that of the server.
    async fn with(variables: &[(&str, &str)]) -> Self {
        let server = MockServer::start().await;
        let value = |value: &str| value.replace("URL", &server.uri());
        let variables = variables.iter().map(|(name, text)| ((*name).to_owned(), value(text)));
        let options = Ec2Options {
            region: Some("eu-west-1".to_owned()),
            endpoint: Some(format!("{}/", server.uri())),
            ..Ec2Options::default()
        };
        let access = options.access(&AwsEnvironment(variables.collect())).unwrap();
        let driver = Ec2Prefixes::new(access, Arc::new(NoopRequestObserver), Fence::default()).unwrap();
        Self { server, driver }
    }

    /// Answers requests for `action` whose body contains `with`.
    async fn answer(&self, action: &str, with: &str, status: u16, body: &str) {
        Mock::given(method("POST"))
            .and(body_string_contains(format!("Action={action}&")))
            .and(body_string_contains(with))
            .and(header_exists("authorization"))
            .respond_with(ResponseTemplate::new(status).set_body_string(body))
            .mount(&self.server)
            .await;
    }

    /// Answers the next request for `action` only.
    async fn answer_once(&self, action: &str, status: u16, body: &str) {
        Mock::given(body_string_contains(format!("Action={action}&")))
            .respond_with(ResponseTemplate::new(status).set_body_string(body))
            .up_to_n_times(1)
            .mount(&self.server)
            .await;
    }

    /// Returns the bodies of the requests for `action`, without the action and the version.
    async fn requests(&self, action: &str) -> Vec<String> {
        let start = format!("Action={action}&Version=2016-11-15");
        let requests = self.server.received_requests().await.unwrap();
        let bodies = requests.iter().filter_map(|request| String::from_utf8(request.body.clone()).ok());
        bodies
            .filter_map(|body| Some(body.strip_prefix(&start)?.trim_start_matches('&').to_owned()))
            .collect()
    }
}

fn instance(id: &str, state: &str) -> String {
    format!(
        "<item><reservationId>r-1</reservationId><instancesSet><item><instanceId>{id}</instanceId>\
         <instanceState><code>16</code><name>{state}</name></instanceState><instanceType>m5.large</instanceType>\
         <networkInterfaceSet>\
         <item><networkInterfaceId>eni-second</networkInterfaceId><subnetId>subnet-1</subnetId>\
         <attachment><deviceIndex>1</deviceIndex></attachment></item>\
         <item><networkInterfaceId>eni-{id}</networkInterfaceId><subnetId>subnet-1</subnetId>\
         <attachment><deviceIndex>0</deviceIndex><networkCardIndex>0</networkCardIndex></attachment>\
         <privateIpAddressesSet><item><privateIpAddress>10.0.0.4</privateIpAddress><primary>true</primary></item>\
         </privateIpAddressesSet><ipv4PrefixSet><item><ipv4Prefix>10.0.0.16/28</ipv4Prefix></item></ipv4PrefixSet></item>\
         </networkInterfaceSet></item></instancesSet></item>"
    )
}

fn instances(items: &str, token: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DescribeInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
         <requestId>r</requestId><reservationSet>{items}</reservationSet>{token}</DescribeInstancesResponse>"
    )
}

const TYPES: &str = "<DescribeInstanceTypesResponse><instanceTypeSet><item><instanceType>m5.large</instanceType>\
    <hypervisor>nitro</hypervisor><bareMetal>false</bareMetal><networkInfo><ipv4AddressesPerInterface>10</ipv4AddressesPerInterface>\
    </networkInfo></item></instanceTypeSet></DescribeInstanceTypesResponse>";
const SUBNETS: &str = "<DescribeSubnetsResponse><subnetSet><item><subnetId>subnet-1</subnetId>\
    <cidrBlock>10.0.0.0/19</cidrBlock></item></subnetSet></DescribeSubnetsResponse>";
const REMOVED: &str =
    "<UnassignPrivateIpAddressesResponse><return>true</return></UnassignPrivateIpAddressesResponse>";

fn error(code: &str) -> String {
    format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>m</Message></Error></Errors><RequestID>r</RequestID></Response>"
    )
}

fn blocks(texts: &[&str]) -> Vec<Ipv4Net> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn the_requests_of_an_attempt_are_logged_by_their_actions() {
    let endpoint = Endpoint::new().await;
    endpoint.answer("DescribeInstances", "", 503, &error("Unavailable")).await;
    let log = Arc::<RequestLog>::default();
    log.collect(endpoint.driver.interfaces(&["i-1".into()])).await.unwrap_err();
    let requests = log.requests();
    assert_eq!(
        requests.iter().map(|request| (&*request.path, request.status)).collect::<Vec<_>>(),
        [("DescribeInstances", Some(503))]
    );
}

#[tokio::test]
async fn interfaces_are_read_page_by_page_and_types_and_subnets_once() {
    let endpoint = Endpoint::new().await;
    let second = instances(&(instance("i-2", "running") + &instance("i-3", "terminated")), "");
    endpoint.answer("DescribeInstances", "NextToken=page2", 200, &second).await;
    let first = instances(&instance("i-1", "running"), "<nextToken>page2</nextToken>");
    endpoint.answer("DescribeInstances", "", 200, &first).await;
    endpoint.answer("DescribeInstanceTypes", "Filter.1.Value.1=m5.large", 200, TYPES).await;
    endpoint.answer("DescribeSubnets", "Filter.1.Value.1=subnet-1", 200, SUBNETS).await;
    let ids = ["i-1", "i-2", "i-3", "i-4"].map(InstanceId::from);
    for _ in 0..2 {
        let interfaces = endpoint.driver.interfaces(&ids).await.unwrap();
        assert_eq!(interfaces.keys().collect::<Vec<_>>(), [&ids[0], &ids[1]]);
        let expected = PrimaryInterface {
            id: "eni-i-1".into(),
            subnet: "subnet-1".into(),
            subnet_length: 19,
            addresses_per_interface: 10,
            delegates_prefixes: true,
            blocks: blocks(&["10.0.0.16/28"]).into_iter().collect(),
        };
        assert_eq!(interfaces[&ids[0]], expected);
    }
    let requests = endpoint.requests("DescribeInstances").await;
    let filter = "Filter.1.Name=instance-id&Filter.1.Value.1=i-1&Filter.1.Value.2=i-2&Filter.1.Value.3=i-3&Filter.1.Value.4=i-4";
    assert_eq!(requests[..2], [filter.to_owned(), format!("{filter}&NextToken=page2")]);
    assert_eq!(endpoint.requests("DescribeInstanceTypes").await.len(), 1);
    assert_eq!(endpoint.requests("DescribeSubnets").await.len(), 1);
}

#[tokio::test]
async fn an_instance_type_that_ec2_does_not_describe_is_named() {
    let endpoint = Endpoint::new().await;
    endpoint.answer("DescribeInstances", "", 200, &instances(&instance("i-1", "running"), "")).await;
    let none = "<DescribeInstanceTypesResponse><instanceTypeSet/></DescribeInstanceTypesResponse>";
    endpoint.answer("DescribeInstanceTypes", "", 200, none).await;
    endpoint.answer("DescribeSubnets", "", 200, SUBNETS).await;
    let error = endpoint.driver.interfaces(&["i-1".into()]).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Unsupported);
    assert!(error.to_string().contains("the instance type m5.large"), "{error}");
}

#[tokio::test]
async fn one_request_assigns_any_number_of_prefixes_or_addresses() {
    let endpoint = Endpoint::new().await;
    let prefixes = "<AssignPrivateIpAddressesResponse><networkInterfaceId>eni-1</networkInterfaceId><assignedIpv4PrefixSet>\
        <item><ipv4Prefix>10.0.0.16/28</ipv4Prefix></item><item><ipv4Prefix>10.0.0.32/28</ipv4Prefix></item></assignedIpv4PrefixSet>\
        <return>true</return></AssignPrivateIpAddressesResponse>";
    endpoint.answer("AssignPrivateIpAddresses", "Ipv4PrefixCount=2", 200, prefixes).await;
    let addresses = "<AssignPrivateIpAddressesResponse><assignedPrivateIpAddressesSet><item><privateIpAddress>10.0.0.5</privateIpAddress>\
        </item></assignedPrivateIpAddressesSet></AssignPrivateIpAddressesResponse>";
    endpoint.answer("AssignPrivateIpAddresses", "SecondaryPrivateIpAddressCount=1", 200, addresses).await;
    let (driver, interface) = (&endpoint.driver, "eni-1".into());
    let assigned = driver.assign(&interface, BlockKind::Prefix, 2).await;
    assert_eq!(assigned.blocks, blocks(&["10.0.0.16/28", "10.0.0.32/28"]));
    assert_eq!(driver.assign(&interface, BlockKind::Address, 1).await.blocks, blocks(&["10.0.0.5/32"]));
    let requests = endpoint.requests("AssignPrivateIpAddresses").await;
    assert_eq!(requests[0], "NetworkInterfaceId=eni-1&Ipv4PrefixCount=2");
}

#[tokio::test]
async fn an_exhausted_subnet_and_a_full_interface_have_their_reasons() {
    let endpoint = Endpoint::new().await;
    for (code, reason) in
        [("InsufficientCidrBlocks", Reason::NoAddress), ("PrivateIpAddressLimitExceeded", Reason::Quota)]
    {
        endpoint.answer_once("AssignPrivateIpAddresses", 400, &error(code)).await;
        let assigned = endpoint.driver.assign(&"eni-1".into(), BlockKind::Prefix, 1).await;
        let failed = assigned.error.unwrap();
        assert_eq!((failed.reason(), failed.ambiguous()), (reason, false), "{code}");
    }
}

#[tokio::test]
async fn after_throttling_nothing_is_sent_before_the_pause_is_over() {
    let endpoint = Endpoint::new().await;
    endpoint.answer("AssignPrivateIpAddresses", "", 503, &error("RequestLimitExceeded")).await;
    for _ in 0..5 {
        let assigned = endpoint.driver.assign(&"eni-1".into(), BlockKind::Prefix, 1).await;
        let failed = assigned.error.unwrap();
        let wait = failed.retry_after().unwrap();
        assert!(failed.transient() && !failed.ambiguous() && wait <= Duration::from_secs(1), "{failed}");
    }
    assert_eq!(endpoint.requests("AssignPrivateIpAddresses").await.len(), 1);
}

#[tokio::test]
async fn blocks_that_are_not_assigned_count_as_removed_and_the_others_are_removed() {
    let endpoint = Endpoint::new().await;
    let wrong = error("InvalidParameterValue");
    endpoint.answer("UnassignPrivateIpAddresses", "10.0.0.48", 400, &wrong).await;
    endpoint.answer("UnassignPrivateIpAddresses", "", 200, REMOVED).await;
    let interface = "<DescribeNetworkInterfacesResponse><networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId>\
        <ipv4PrefixSet><item><ipv4Prefix>10.0.0.16/28</ipv4Prefix></item></ipv4PrefixSet></item></networkInterfaceSet>\
        </DescribeNetworkInterfacesResponse>";
    endpoint.answer("DescribeNetworkInterfaces", "NetworkInterfaceId.1=eni-1", 200, interface).await;
    let (driver, id) = (&endpoint.driver, "eni-1".into());
    driver.unassign(&id, &blocks(&["10.0.0.16/28", "10.0.0.48/28"])).await.unwrap();
    let requests = endpoint.requests("UnassignPrivateIpAddresses").await;
    assert_eq!(requests.last().unwrap(), "NetworkInterfaceId=eni-1&Ipv4Prefix.1=10.0.0.16%2F28");
    driver.unassign(&id, &blocks(&["10.0.0.48/28"])).await.unwrap();
    driver.unassign(&id, &blocks(&["10.0.0.16/28", "10.0.0.5/32"])).await.unwrap();
    let requests = endpoint.requests("UnassignPrivateIpAddresses").await;
    let both = "NetworkInterfaceId=eni-1&Ipv4Prefix.1=10.0.0.16%2F28&PrivateIpAddress.1=10.0.0.5";
    assert_eq!((requests.len(), requests.last().unwrap().as_str()), (4, both));
}

#[tokio::test]
async fn an_error_after_which_some_of_the_blocks_may_be_gone_is_ambiguous() {
    let endpoint = Endpoint::new().await;
    let both = blocks(&["10.0.0.16/28", "10.0.0.48/28"]);
    let (driver, id) = (&endpoint.driver, "eni-1".into());
    endpoint.answer("UnassignPrivateIpAddresses", "", 400, &error("InvalidParameterValue")).await;
    endpoint.answer_once("DescribeNetworkInterfaces", 400, &error("InternalError")).await;
    assert!(driver.unassign(&id, &both).await.unwrap_err().ambiguous(), "it cannot be read");
    let shows = |prefixes: &[&str]| {
        let item = |prefix: &&str| format!("<item><ipv4Prefix>{prefix}</ipv4Prefix></item>");
        let prefixes = prefixes.iter().map(item).collect::<Vec<_>>().concat();
        format!(
            "<DescribeNetworkInterfacesResponse><networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId>\
            <ipv4PrefixSet>{prefixes}</ipv4PrefixSet></item></networkInterfaceSet></DescribeNetworkInterfacesResponse>"
        )
    };
    endpoint.answer_once("DescribeNetworkInterfaces", 200, &shows(&["10.0.0.16/28", "10.0.0.48/28"])).await;
    assert!(driver.unassign(&id, &both).await.unwrap_err().ambiguous(), "the read may be old");
    endpoint.answer_once("DescribeNetworkInterfaces", 200, &shows(&["10.0.0.16/28"])).await;
    assert!(driver.unassign(&id, &both).await.unwrap_err().ambiguous(), "one of them is gone");
}

#[tokio::test]
async fn an_interface_that_is_gone_has_no_blocks_and_a_rejection_that_is_none_of_these_is_an_error() {
    let endpoint = Endpoint::new().await;
    endpoint
        .answer_once("UnassignPrivateIpAddresses", 400, &error("InvalidNetworkInterfaceID.NotFound"))
        .await;
    let (driver, id) = (&endpoint.driver, "eni-1".into());
    driver.unassign(&id, &blocks(&["10.0.0.16/28"])).await.unwrap();
    endpoint.answer("UnassignPrivateIpAddresses", "", 403, &error("UnauthorizedOperation")).await;
    let failed = driver.unassign(&id, &blocks(&["10.0.0.16/28"])).await.unwrap_err();
    assert_eq!(failed.reason(), Reason::Refused);
}

#[tokio::test]
async fn a_response_that_is_lost_or_no_xml_may_have_taken_effect() {
    let endpoint = Endpoint::new().await;
    endpoint.answer("AssignPrivateIpAddresses", "", 200, "<html>").await;
    let assigned = endpoint.driver.assign(&"eni-1".into(), BlockKind::Prefix, 1).await;
    assert!(assigned.error.unwrap().ambiguous());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = driver(&format!("http://{port}"), Fence::default());
    let failed = closed.assign(&"eni-1".into(), BlockKind::Prefix, 1).await.error.unwrap();
    assert!(failed.transient() && !failed.ambiguous(), "no connection was made: {failed}");
}

/// Returns a driver with access keys.
fn driver(url: &str, fence: Fence) -> Ec2Prefixes {
    let variables = [("AWS_ACCESS_KEY_ID", "AKIA1"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let options = Ec2Options {
        region: Some("eu-west-1".to_owned()),
        endpoint: Some(url.to_owned()),
        ..Ec2Options::default()
    };
    let access = options.access(&AwsEnvironment(variables)).unwrap();
    Ec2Prefixes::new(access, Arc::new(NoopRequestObserver), fence).unwrap()
}

#[tokio::test]
async fn without_the_lease_nothing_is_sent() {
    let endpoint = Endpoint::new().await;
    let fenced = driver(&endpoint.server.uri(), Fence::new(|| false));
    assert!(fenced.assign(&"eni-1".into(), BlockKind::Prefix, 1).await.error.is_some());
    assert!(endpoint.server.received_requests().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_action_that_is_not_permitted_is_distinguished_from_the_others() {
    let endpoint = Endpoint::new().await;
    for action in ["DescribeInstances", "DescribeSubnets", "DescribeNetworkInterfaces"] {
        endpoint.answer(action, "MaxResults=5", 200, "<Response><requestId>r</requestId></Response>").await;
    }
    endpoint.answer("DescribeInstanceTypes", "MaxResults=5", 403, &error("UnauthorizedOperation")).await;
    let rights = endpoint.driver.read_rights().await;
    let refused: Vec<_> =
        rights.iter().filter_map(|(action, result)| Some((*action, result.as_ref().err()?))).collect();
    let [(action, error)] = refused.as_slice() else { panic!("{rights:?}") };
    assert_eq!((*action, error.reason()), ("DescribeInstanceTypes", Reason::Refused));
    assert_eq!(rights.len(), 4);
}
