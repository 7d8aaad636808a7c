//! Counts what a long listing has read so far. A listing of all ports of a cloud can take minutes; the count
//! lets the caller log its progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

tokio::task_local! {
    /// The counter of the [`count_listed`] call whose future is being polled: the number of resources read from lists so far.
    static LISTED: Arc<AtomicUsize>;
}

/// Runs `work`, and counts in `listed` the resources that drivers read from lists meanwhile, in the same task.
pub async fn count_listed<W: Future>(listed: Arc<AtomicUsize>, work: W) -> W::Output {
    LISTED.scope(listed, work).await
}

/// Counts `count` resources of one page of a list. Drivers call this for each page; outside of [`count_listed`] it does nothing.
pub fn page_listed(count: usize) {
    // An error means that nobody counts.
    let _ = LISTED.try_with(|listed| listed.fetch_add(count, Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_are_counted_within_the_scope_only() {
        let listed = Arc::<AtomicUsize>::default();
        page_listed(1);
        count_listed(Arc::clone(&listed), async {
            page_listed(1000);
            tokio::task::yield_now().await;
            page_listed(7);
        })
        .await;
        page_listed(1);
        assert_eq!(listed.load(Relaxed), 1007);
    }
}
