//! The pools of VIFs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::DescriptorEncoder;
use staffetta_driver::PoolFigures;

use super::exposition::write;
use super::names;

/// Who is asked how the pools of VIFs are, by name. All copies are one.
#[derive(Clone, Default)]
pub(crate) struct Pools(Arc<Mutex<Vec<Pool>>>);

struct Pool {
    name: &'static str,
    figures: Box<dyn Fn() -> PoolFigures + Send + Sync>,
}

impl Pools {
    /// One more pool.
    pub(crate) fn add(&self, name: &'static str, figures: impl Fn() -> PoolFigures + Send + Sync + 'static) {
        let pool = Pool { name, figures: Box::new(figures) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pool);
    }

    fn read(&self) -> Vec<(&'static str, PoolFigures)> {
        let pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().map(|pool| (pool.name, (pool.figures)())).collect()
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
