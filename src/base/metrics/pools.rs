//! Metrics of the VIF pools, which are read from the pools when `/metrics` is requested.

use parking_lot::Mutex;
use staffetta_pool::VifPoolMetrics;

use super::family::MetricsPage;
use super::names;

/// The metrics of all VIF pools, which the pools return on request.
#[derive(Default)]
pub(crate) struct PoolMetrics(Mutex<Vec<PoolSource>>);

/// The metrics of one VIF pool: a function that reads them from the pool, and the counts of earlier pools.
struct PoolSource {
    name: &'static str,
    /// The counts of earlier pools of the same name, from former leadership terms of this process.
    earlier: VifPoolMetrics,
    read_metrics: Box<dyn Fn() -> VifPoolMetrics + Send + Sync>,
}

impl PoolSource {
    /// Returns the current gauges of the pool, and its counts together with those of earlier pools of the
    /// same name.
    fn read(&self) -> VifPoolMetrics {
        (self.read_metrics)().after(&self.earlier)
    }
}

impl PoolMetrics {
    /// Adds the VIF pool `name`, whose current metrics `read_metrics` returns. It replaces an earlier pool of the same name and continues
    /// its counts.
    pub(crate) fn add(
        &self,
        name: &'static str,
        read_metrics: impl Fn() -> VifPoolMetrics + Send + Sync + 'static,
    ) {
        let (mut pools, read_metrics) = (self.0.lock(), Box::new(read_metrics));
        match pools.iter_mut().find(|pool| pool.name == name) {
            Some(pool) => {
                pool.earlier = pool.read();
                pool.read_metrics = read_metrics;
            }
            None => pools.push(PoolSource { name, earlier: VifPoolMetrics::default(), read_metrics }),
        }
    }

    /// Reads the metrics of all VIF pools and adds them to `page`, the response of `/metrics`.
    pub(super) fn show(&self, page: &mut MetricsPage) {
        let pools: Vec<_> = self.0.lock().iter().map(|pool| (pool.name, pool.read())).collect();
        let vifs = pools.iter().flat_map(|(name, pool)| {
            let VifPoolMetrics { free, cooling, used, creating, deleting, .. } = *pool;
            [
                ([*name, "free"], free),
                ([name, "cooling"], cooling),
                ([name, "used"], used),
                ([name, "creating"], creating),
                ([name, "deleting"], deleting),
            ]
        });
        page.counts(&names::VIF_POOL_VIFS, vifs);
        page.counts(&names::VIF_POOL_WAITING, pools.iter().map(|(name, pool)| ([*name], pool.waiting)));
        let hand_outs = pools
            .iter()
            .flat_map(|(name, pool)| [([*name, "warm"], pool.warm), ([name, "waited"], pool.waited)]);
        page.counts(&names::VIF_POOL_HAND_OUTS, hand_outs);
        let refills = pools.iter().flat_map(|(name, pool)| {
            [([*name, "full"], pool.refills), ([name, "short"], pool.short_refills)]
        });
        page.counts(&names::VIF_POOL_REFILLS, refills);
        page.counts(&names::VIF_POOL_CONFLICTS, pools.iter().map(|(name, pool)| ([*name], pool.conflicts)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_of_the_next_term_replaces_the_one_before_and_continues_its_counts() {
        let pools = PoolMetrics::default();
        let read_metrics = |free, warm| move || VifPoolMetrics { free, warm, ..VifPoolMetrics::default() };
        pools.add("memory", read_metrics(5, 7));
        pools.add("neutron", read_metrics(1, 1));
        pools.add("memory", read_metrics(3, 2));
        let mut page = MetricsPage::default();
        pools.show(&mut page);
        let page = page.encode().unwrap();
        for (name, free, warm) in [("memory", 3, 9), ("neutron", 1, 1)] {
            let vifs = format!("staffetta_vif_pool_vifs{{pool=\"{name}\",state=\"free\"}} {free}\n");
            let warm =
                format!("staffetta_vif_pool_hand_outs_total{{pool=\"{name}\",source=\"warm\"}} {warm}\n");
            assert!(page.contains(&vifs) && page.contains(&warm), "{page}");
        }
    }
}
