//! The wait for the first answer of a base.

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::tunnel::{NodeId, Tunnel};
use staffetta_handler::BackoffPolicy;
use tokio::task::JoinSet;
use tracing::warn;

/// The delays between two requests for the health of a base that has not answered yet.
const BACKOFF: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_secs(2), Duration::from_secs(60));

/// The number of unanswered health requests after which a warning about the base is logged.
const WARN_AFTER: u32 = 3;

/// The time limit of one request for the health of a base.
const LIMIT: Duration = Duration::from_secs(10);

/// The wait for the first answer of a base that introduces itself and has no node. A base that reports and cannot be reached would
/// otherwise get a node and lose it, again and again. Dropping it ends the requests.
pub(super) struct FirstAnswer {
    _asking: JoinSet<()>,
}

impl FirstAnswer {
    /// Begins to ask a base for its health, at once and then less and less often.
    pub(super) fn ask(node: &Arc<str>, id: &NodeId, tunnel: Arc<dyn Tunnel>) -> Self {
        let (node, id, mut asking) = (Arc::clone(node), id.clone(), JoinSet::new());
        asking.spawn(async move {
            for asked in 0.. {
                if asked == WARN_AFTER {
                    warn!(
                        node = &*node,
                        "the base introduces itself and does not answer; it gets a node when requests reach it"
                    );
                }
                let _ = tokio::time::timeout(LIMIT, tunnel.fetch_health_data(&id)).await;
                tokio::time::sleep(BACKOFF.requeue_delay(asked, None)).await;
            }
        });
        Self { _asking: asking }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vnode::known::tests::NoTunnel;

    #[tokio::test(start_paused = true)]
    async fn a_base_is_asked_at_once_and_then_less_and_less_often() {
        let tunnel = Arc::new(NoTunnel::default());
        let base = "b".parse().unwrap();
        let asking = FirstAnswer::ask(&"vnode.b.dev".into(), &base, Arc::clone(&tunnel) as Arc<dyn Tunnel>);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(tunnel.health_requests(), 1);
        tokio::time::sleep(Duration::from_secs(600)).await;
        let asked = tunnel.health_requests();
        assert!((9..21).contains(&asked), "{asked}");
        drop(asking);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(tunnel.health_requests(), asked);
    }
}
