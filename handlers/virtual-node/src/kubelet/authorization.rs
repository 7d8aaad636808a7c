//! Authentication and authorization of requests to the kubelet API, as in a kubelet with webhook authentication and
//! authorization: the API server verifies tokens (`TokenReview`) and decides on access (`SubjectAccessReview`).

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use staffetta_handler::causes;
use tokio::time::{Instant, timeout};
use tracing::warn;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The time for which the permission of a client with a certificate is cached, as in a kubelet.
const PERMITTED: Duration = Duration::from_secs(300);
/// The time for which the permission of a client with a token is cached, as in a kubelet.
const PERMITTED_TOKEN: Duration = Duration::from_secs(120);
/// The time for which a denial is cached, as in a kubelet.
const DENIED: Duration = Duration::from_secs(30);

/// The number of invalid tokens from one address in the time [`DENIED`] after which further tokens are refused without a review.
pub(super) const INVALID_TOKENS: usize = 10;

/// The maximum number of cached decisions per node, and of addresses that sent invalid tokens.
pub(super) const DECISIONS: usize = 256;

/// The time limit of a request for a `TokenReview` or `SubjectAccessReview`.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";

/// A credential of a client. It does not implement `Debug`, because a token is secret.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum ClientCredential {
    /// The common name and the organizations of a verified certificate: the name and the groups of the user.
    Certificate(String, Vec<String>),
    /// A bearer token, which is not verified yet.
    Token(String),
}

/// The reason why a request is not served: the status and the text of the response.
pub(super) type Denial = (StatusCode, String);

/// The key of a cached decision: a credential, the verb of the request, and the subresources of `nodes`. The client must be permitted to
/// access one of them.
type Access = (ClientCredential, &'static str, &'static [&'static str]);

/// Decides which clients may use the kubelet API of one node.
pub(super) struct Authorizer {
    client: Client,
    node: String,
    /// The cached decisions (`None`: permitted), each with the time until which it is valid.
    decisions: Mutex<HashMap<Access, (Option<Denial>, Instant)>>,
    /// The number of invalid tokens from each address, with the time until which they are counted.
    invalid: Mutex<HashMap<IpAddr, (usize, Instant)>>,
}

impl Authorizer {
    /// Creates the authorizer of the node named `node`, without cached decisions. `client` sends the reviews to the API server.
    pub(super) fn new(client: Client, node: String) -> Self {
        Self { client, node, decisions: Mutex::default(), invalid: Mutex::default() }
    }

    /// Succeeds if the user of `credential` may send a request with `method` for `path`. If the API server makes no decision, the denial
    /// has the status 500. After too many invalid tokens from the address `peer`, no further one from there is reviewed, and the denial has
    /// the status 429.
    pub(super) async fn authorize(
        &self,
        credential: ClientCredential,
        peer: IpAddr,
        method: &Method,
        path: &str,
    ) -> Result<(), Denial> {
        let key = (credential, verb(method), subresources(path));
        if let Some((denial, until)) = self.decisions.lock().get(&key)
            && *until > Instant::now()
        {
            return denial.clone().map_or(Ok(()), Err);
        }
        let is_token = matches!(key.0, ClientCredential::Token(_));
        if is_token && self.has_sent_invalid_tokens(peer) {
            let text = format!("too many invalid tokens; wait for {} s\n", DENIED.as_secs());
            return Err((StatusCode::TOO_MANY_REQUESTS, text));
        }
        let reviewed = self.review(&key.0, key.1, key.2).await;
        if is_token && reviewed.as_ref().is_err_and(|(status, _)| *status == StatusCode::UNAUTHORIZED) {
            self.count_invalid_token(peer);
        }
        let denial = reviewed?;
        let valid = match (&denial, &key.0) {
            (Some(_), _) => DENIED,
            (None, ClientCredential::Certificate(..)) => PERMITTED,
            (None, ClientCredential::Token(_)) => PERMITTED_TOKEN,
        };
        let (mut decisions, now) = (self.decisions.lock(), Instant::now());
        if decisions.len() >= DECISIONS {
            decisions.retain(|_, (_, until)| *until > now);
        }
        if decisions.len() < DECISIONS {
            decisions.insert(key, (denial.clone(), now + valid));
        }
        denial.map_or(Ok(()), Err)
    }

    /// Returns `true` if no further token from `peer` is to be reviewed now.
    fn has_sent_invalid_tokens(&self, peer: IpAddr) -> bool {
        let (invalid, now) = (self.invalid.lock(), Instant::now());
        invalid.get(&peer).is_some_and(|(count, until)| *count >= INVALID_TOKENS && *until > now)
    }

    /// Counts an invalid token from `peer`. Of addresses beyond [`DECISIONS`], none is counted.
    fn count_invalid_token(&self, peer: IpAddr) {
        let (mut invalid, now) = (self.invalid.lock(), Instant::now());
        invalid.retain(|_, (_, until)| *until > now);
        if invalid.len() < DECISIONS || invalid.contains_key(&peer) {
            invalid.entry(peer).or_insert((0, now + DENIED)).0 += 1;
        }
    }

    /// Returns the number of cached decisions.
    #[cfg(test)]
    pub(super) fn cached(&self) -> usize {
        self.decisions.lock().len()
    }

    /// Asks the API server whether the user of `credential` may access one of these subresources of the node. Returns `None` if so,
    /// otherwise the denial; [`authorize`](Self::authorize) caches both. The error is a denial that is not cached: the credential is
    /// invalid (401), or the API server made no decision (500).
    async fn review(
        &self,
        credential: &ClientCredential,
        verb: &str,
        subresources: &[&str],
    ) -> Result<Option<Denial>, Denial> {
        let user = match credential {
            ClientCredential::Certificate(name, groups) => {
                let groups = groups.iter().cloned().chain([AUTHENTICATED.to_owned()]).collect();
                UserInfo { username: Some(name.clone()), groups: Some(groups), ..UserInfo::default() }
            }
            ClientCredential::Token(token) => {
                let spec = TokenReviewSpec { token: Some(token.clone()), ..TokenReviewSpec::default() };
                let review = self.ask(&TokenReview { spec, ..TokenReview::default() }).await?;
                let status = review.status.filter(|status| status.authenticated == Some(true));
                let invalid = || (StatusCode::UNAUTHORIZED, "the bearer token is invalid\n".to_owned());
                status.ok_or_else(invalid)?.user.unwrap_or_default()
            }
        };
        for subresource in subresources {
            let attributes = ResourceAttributes {
                verb: Some(verb.into()),
                version: Some("v1".into()),
                resource: Some("nodes".into()),
                subresource: Some((*subresource).into()),
                name: Some(self.node.clone()),
                ..ResourceAttributes::default()
            };
            let spec = SubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                user: user.username.clone(),
                groups: user.groups.clone(),
                uid: user.uid.clone(),
                extra: user.extra.clone(),
                ..SubjectAccessReviewSpec::default()
            };
            let review = self.ask(&SubjectAccessReview { spec, ..SubjectAccessReview::default() }).await?;
            let permits = |status: &SubjectAccessReviewStatus| status.allowed && status.denied != Some(true);
            if review.status.as_ref().is_some_and(permits) {
                return Ok(None);
            }
        }
        let text = format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.username.unwrap_or_default(),
            subresources.join(" ")
        );
        Ok(Some((StatusCode::FORBIDDEN, text)))
    }

    /// Sends a review to the API server, and returns it with its status. If the request fails or is not answered in time, the error is a
    /// denial with the status 500.
    async fn ask<R>(&self, review: &R) -> Result<R, Denial>
    where
        R: kube::Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let reviews = Api::all(self.client.clone());
        let answer = timeout(REVIEW_TIMEOUT, reviews.create(&PostParams::default(), review)).await;
        let error = match answer {
            Ok(Ok(review)) => return Ok(review),
            Ok(Err(error)) => causes(&error),
            Err(_) => "the API server did not answer in time".to_owned(),
        };
        warn!(node = self.node, error, "a request to a kubelet API cannot be authorized");
        let text = "the API server could not decide on this request; try again later\n";
        Err((StatusCode::INTERNAL_SERVER_ERROR, text.to_owned()))
    }
}

/// Returns the verb that the `SubjectAccessReview` of a request with this HTTP method has.
fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// Returns the subresources of `nodes` for a path. Access to one of them is sufficient.
fn subresources(path: &str) -> &'static [&'static str] {
    match path.trim_start_matches('/').split('/').next().unwrap_or_default() {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        _ => &["proxy"],
    }
}

/// Returns the credential of a client: that of its certificate, or else its bearer token, not verified yet; `None` if it has neither.
pub(super) fn credential(
    certified: Option<ClientCredential>,
    headers: &HeaderMap,
) -> Option<ClientCredential> {
    let token = || {
        let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
            .then(|| ClientCredential::Token(token.to_owned()))
    };
    certified.or_else(token)
}

/// Reads the user and the groups from the subject of a verified certificate; `None` if it has no common name, or cannot be decoded.
pub(super) fn certified(certificate: &CertificateDer<'_>) -> Option<ClientCredential> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().last()?.as_str().ok().filter(|name| !name.is_empty())?;
    let groups: Result<_, _> =
        subject.iter_organization().map(|group| group.as_str().map(str::to_owned)).collect();
    Some(ClientCredential::Certificate(name.to_owned(), groups.ok()?))
}
