//! The one token of a cloud, shared by all calls.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::hold_off::HoldOff;
use super::login::login;
use super::secret::Reading;
use super::token::Token;
use crate::access::Access;
use crate::cloud::{Http, ServiceKind};
use crate::error::OpenStackError;

/// A catalogue that lacks a service is read anew when it is so old.
const OUTDATED: Duration = Duration::from_secs(60);

/// The one token of a cloud. Whoever finds it not accepted, or expired, logs in; all others wait for that one. Nobody waits for
/// the renewal of one that is old and has not expired.
#[derive(Debug)]
pub(crate) struct Session {
    http: Http,
    access: Access,
    current: RwLock<Option<Arc<Token>>>,
    /// Held during a login.
    logins: Arc<Mutex<Logins>>,
}

#[derive(Debug, Default)]
struct Logins {
    hold_off: HoldOff,
    reading: Reading,
    /// After tokens that the service never accepted, each at its place. They are others, because with these the login itself goes
    /// well, and a service that accepts what another one refuses says nothing for that one.
    in_vain: [HoldOff; ServiceKind::COUNT],
}

impl Session {
    pub(crate) fn new(http: Http, access: Access) -> Self {
        Self { http, access, current: RwLock::default(), logins: Arc::default() }
    }

    /// How the cloud is reached.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// A token that has not expired.
    pub(crate) async fn token(self: &Arc<Self>) -> Result<Arc<Token>, OpenStackError> {
        if let Some(token) = self.good() {
            if token.is_old(Instant::now()) {
                self.renew_meanwhile();
            }
            return Ok(token);
        }
        let mut logins = self.logins.lock().await;
        match self.good() {
            Some(token) => Ok(token),
            None => self.renew(&mut logins).await,
        }
    }

    /// Logs in while the calls go on with the token that there is, unless somebody does so already. Should Keystone hang, that
    /// token is good until it expires.
    fn renew_meanwhile(self: &Arc<Self>) {
        let Ok(mut logins) = Arc::clone(&self.logins).try_lock_owned() else { return };
        if self.current().is_some_and(|token| !token.is_old(Instant::now())) {
            return;
        }
        let this = Arc::clone(self);
        // What went wrong is logged, and told to those who find the token expired.
        tokio::spawn(async move { drop(this.renew(&mut logins).await) });
    }

    /// The service did not accept `token`: a newer one, or none when that would be in vain.
    pub(crate) async fn refused(
        &self,
        token: &Arc<Token>,
        service: ServiceKind,
    ) -> Result<Option<Arc<Token>>, OpenStackError> {
        let mut logins = self.logins.lock().await;
        if let Some(newer) = self.newer(token) {
            return Ok(Some(newer));
        }
        let now = Instant::now();
        let in_vain = &mut logins.in_vain[service.place()];
        if token.was_accepted(service) {
            in_vain.succeeded();
        } else {
            // A fresh token that the service does not take: another one as fresh is no better, or not yet.
            if in_vain.check(now).is_err() {
                return Ok(None);
            }
            let problem = crate::error::refused(401, b"");
            in_vain.failed(OpenStackError::new("use a token", problem), now);
        }
        self.renew(&mut logins).await.map(Some)
    }

    /// The catalogue of `token` lacks what is looked for: a newer token, if that one is old enough to be outdated.
    pub(crate) async fn outdated(&self, token: &Arc<Token>) -> Option<Arc<Token>> {
        if token.age(Instant::now()) < OUTDATED {
            return None;
        }
        let mut logins = self.logins.lock().await;
        match self.newer(token) {
            Some(newer) => Some(newer),
            None => self.renew(&mut logins).await.ok(),
        }
    }

    async fn renew(&self, logins: &mut Logins) -> Result<Arc<Token>, OpenStackError> {
        logins.hold_off.check(Instant::now())?;
        match login(&self.http, &self.access.auth, self.access.timeout, &mut logins.reading).await {
            Ok(token) => {
                logins.hold_off.succeeded();
                info!("logged in to Keystone");
                let token = Arc::new(token);
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&token));
                Ok(token)
            }
            Err(error) => {
                let error = logins.hold_off.failed(error, Instant::now());
                warn!(%error, "the login to Keystone failed");
                Err(error)
            }
        }
    }

    fn newer(&self, token: &Arc<Token>) -> Option<Arc<Token>> {
        self.current().filter(|current| !Arc::ptr_eq(current, token))
    }

    /// The token, unless it has expired.
    fn good(&self) -> Option<Arc<Token>> {
        self.current().filter(|token| !token.has_expired(Instant::now()))
    }

    fn current(&self) -> Option<Arc<Token>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
