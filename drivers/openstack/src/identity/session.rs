//! The one token of a cloud, shared by all calls.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

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

/// The one token of a cloud. Whoever finds it old, or not accepted, logs in; all others wait for that one.
#[derive(Debug)]
pub(crate) struct Session {
    http: Http,
    access: Access,
    current: RwLock<Option<Arc<Token>>>,
    /// Held during a login.
    logins: tokio::sync::Mutex<Logins>,
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
        Self { http, access, current: RwLock::default(), logins: tokio::sync::Mutex::default() }
    }

    /// How the cloud is reached.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// A token that is good for another while.
    pub(crate) async fn token(&self) -> Result<Arc<Token>, OpenStackError> {
        if let Some(token) = self.current().filter(|token| !token.is_old(Instant::now())) {
            return Ok(token);
        }
        let mut logins = self.logins.lock().await;
        let current = self.current();
        if let Some(token) = current.as_ref().filter(|token| !token.is_old(Instant::now())) {
            return Ok(Arc::clone(token));
        }
        match (self.renew(&mut logins).await, current) {
            // What could not be renewed is good until it expires.
            (Err(_), Some(token)) if !token.has_expired(Instant::now()) => Ok(token),
            (renewed, _) => renewed,
        }
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

    fn current(&self) -> Option<Arc<Token>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
