//! The pools of VIFs.

use std::fmt;
use std::sync::{Arc, Mutex};

use prometheus_client::encoding::DescriptorEncoder;
use staffetta_driver::PoolFigures;

use super::exposition::write;
use super::names;
use crate::lock::lock;

/// Who is asked how the pools of VIFs are, by name. All copies are one.
#[derive(Clone, Default)]
pub(crate) struct Pools(Arc<Mutex<Vec<Pool>>>);

struct Pool {
    name: &'static str,
    /// What pools of that name counted in earlier terms of this process.
    earlier: PoolFigures,
    figures: Box<dyn Fn() -> PoolFigures + Send + Sync>,
}

impl Pool {
    fn read(&self) -> PoolFigures {
        (self.figures)().after(&self.earlier)
    }
}

impl Pools {
    /// A pool. It takes the place of an earlier one of its name, and goes on with what that has counted.
    pub(crate) fn add(&self, name: &'static str, figures: impl Fn() -> PoolFigures + Send + Sync + 'static) {
        let (mut pools, figures) = (lock(&self.0), Box::new(figures));
        match pools.iter_mut().find(|pool| pool.name == name) {
            Some(pool) => {
                pool.earlier = pool.read();
                pool.figures = figures;
            }
            None => pools.push(Pool { name, earlier: PoolFigures::default(), figures }),
        }
    }

    fn read(&self) -> Vec<(&'static str, PoolFigures)> {
        lock(&self.0).iter().map(|pool| (pool.name, pool.read())).collect()
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let pools = self.read();
        write(encoder, &names::VIF_POOL_VIFS, |series| {
            for (name, figures) in &pools {
                let PoolFigures { free, cooling, used, making, doomed, .. } = *figures;
                let states = [
                    ("free", free),
                    ("cooling", cooling),
                    ("used", used),
                    ("making", making),
                    ("doomed", doomed),
                ];
                for (state, count) in states {
                    series.gauge(&[name, state], count)?;
                }
            }
            Ok(())
        })?;
        write(encoder, &names::VIF_POOL_WAITING, |series| {
            pools.iter().try_for_each(|(name, figures)| series.gauge(&[name], figures.waiting))
        })?;
        write(encoder, &names::VIF_POOL_HAND_OUTS, |series| {
            for (name, figures) in &pools {
                series.counter(&[name, "warm"], figures.warm)?;
                series.counter(&[name, "waited"], figures.waited)?;
            }
            Ok(())
        })?;
        write(encoder, &names::VIF_POOL_REFILLS, |series| {
            for (name, figures) in &pools {
                series.counter(&[name, "full"], figures.refills)?;
                series.counter(&[name, "short"], figures.short_refills)?;
            }
            Ok(())
        })?;
        write(encoder, &names::VIF_POOL_CONFLICTS, |series| {
            pools.iter().try_for_each(|(name, figures)| series.counter(&[name], figures.conflicts))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_of_the_next_term_takes_the_place_of_the_one_before_and_counts_on() {
        let pools = Pools::default();
        let figures = |free, warm| move || PoolFigures { free, warm, ..PoolFigures::default() };
        pools.add("memory", figures(5, 7));
        pools.add("neutron", figures(1, 1));
        pools.add("memory", figures(3, 2));
        let read = pools.read();
        let read: Vec<_> = read.iter().map(|(name, figures)| (*name, figures.free, figures.warm)).collect();
        assert_eq!(read, [("memory", 3, 9), ("neutron", 1, 1)]);
    }
}
