//! The session of a cloud: one token, which all calls share and which is renewed before it expires.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::backoff::LoginBackoff;
use super::login::login;
use super::secret::SecretReader;
use super::token::Token;
use crate::access::Access;
use crate::error::{OpenStackError, Result};
use crate::http::HttpClient;
use crate::service_kind::ServiceKind;

/// If a service is missing in the catalogue and the token is at least this old, a login reads the catalogue again.
const CATALOGUE_TTL: Duration = Duration::from_secs(60);

/// The login to a cloud and its current token. If the token is missing, expired or rejected, the first call that needs it logs in, and
/// other calls wait for that login. No call waits for the renewal of a token that has not expired.
#[derive(Debug)]
pub(crate) struct KeystoneSession {
    http: HttpClient,
    /// The login and the endpoints of the cloud.
    pub(crate) access: Access,
    current: Mutex<Option<Arc<Token>>>,
    /// The back-off and the reader of secrets, locked during a login so that only one login runs at a time.
    login: Arc<tokio::sync::Mutex<LoginState>>,
}

/// The state that consecutive logins share: the back-off delays, and the reader of the secret.
#[derive(Debug, Default)]
struct LoginState {
    backoff: LoginBackoff,
    secrets: SecretReader,
    /// For each service, the delay between logins after it rejected new tokens. The logins themselves succeed in that case, and other
    /// services may accept the tokens.
    rejected: [LoginBackoff; ServiceKind::COUNT],
}

impl KeystoneSession {
    /// Creates a session without a token. The first call logs in.
    pub(crate) fn new(http: HttpClient, access: Access) -> Self {
        Self { http, access, current: Mutex::default(), login: Arc::default() }
    }

    /// Returns a token that has not expired. Logs in if there is none, and starts a renewal in the background if the token expires soon.
    /// Fails if the login fails.
    pub(crate) async fn token(self: &Arc<Self>) -> Result<Arc<Token>> {
        if let Some(token) = self.valid() {
            if token.is_due(Instant::now()) {
                self.renew_in_background();
            }
            return Ok(token);
        }
        let mut state = self.login.lock().await;
        match self.valid() {
            Some(token) => Ok(token),
            None => self.renew(&mut state).await,
        }
    }

    /// Starts a login in the background, unless one is running. If Keystone hangs, the current token is used until it expires.
    fn renew_in_background(self: &Arc<Self>) {
        let Ok(mut state) = Arc::clone(&self.login).try_lock_owned() else { return };
        if self.current().is_some_and(|token| !token.is_due(Instant::now())) {
            return;
        }
        let session = Arc::clone(self);
        // A failure is logged, and returned to the calls that find the token expired.
        tokio::spawn(async move { drop(session.renew(&mut state).await) });
    }

    /// Returns a newer token after `service` rejected `token`, or `None` if the service rejected a new token so recently that the back-off
    /// allows no login yet.
    pub(crate) async fn renew_rejected(
        &self,
        token: &Arc<Token>,
        service: ServiceKind,
    ) -> Result<Option<Arc<Token>>> {
        let mut state = self.login.lock().await;
        if let Some(newer) = self.newer(token) {
            return Ok(Some(newer));
        }
        let now = Instant::now();
        let rejected = &mut state.rejected[service as usize];
        if token.was_accepted(service) {
            rejected.succeeded();
        } else {
            if rejected.check(now).is_err() {
                return Ok(None);
            }
            rejected.failed(OpenStackError::rejected("use a token", 401, b""), now);
        }
        self.renew(&mut state).await.map(Some)
    }

    /// Returns a newer token if `token` is at least a minute old, so that its catalogue may be outdated. Otherwise, or if the login fails,
    /// returns `None`. It is called if the catalogue lacks a service.
    pub(crate) async fn renew_outdated(&self, token: &Arc<Token>) -> Option<Arc<Token>> {
        if token.age(Instant::now()) < CATALOGUE_TTL {
            return None;
        }
        let mut state = self.login.lock().await;
        match self.newer(token) {
            Some(newer) => Some(newer),
            None => self.renew(&mut state).await.ok(),
        }
    }

    /// Logs in and replaces the current token. During the back-off after a failed login, returns the error of that login instead.
    async fn renew(&self, state: &mut LoginState) -> Result<Arc<Token>> {
        state.backoff.check(Instant::now())?;
        match login(&self.http, &self.access.auth, self.access.timeout, &mut state.secrets).await {
            Ok(token) => {
                state.backoff.succeeded();
                info!("logged in to Keystone");
                let token = Arc::new(token);
                *self.current.lock() = Some(Arc::clone(&token));
                Ok(token)
            }
            Err(error) => {
                let error = state.backoff.failed(error, Instant::now());
                warn!(%error, "the login to Keystone failed");
                Err(error)
            }
        }
    }

    /// Returns the current token if another call has replaced `token` meanwhile; `None` if `token` still is the current one.
    fn newer(&self, token: &Arc<Token>) -> Option<Arc<Token>> {
        self.current().filter(|current| !Arc::ptr_eq(current, token))
    }

    /// Returns the current token, or `None` if there is none or it has expired.
    fn valid(&self) -> Option<Arc<Token>> {
        self.current().filter(|token| !token.has_expired(Instant::now()))
    }

    /// Returns the last token, even if it has expired; `None` before the first login.
    fn current(&self) -> Option<Arc<Token>> {
        self.current.lock().clone()
    }
}
