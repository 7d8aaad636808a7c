//! Ports that pods ask for at about the same time are made by one call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::api::Neutron;
use super::wire::{NewPort, Port};
use crate::error::{OpenStackError, Problem};

/// The most ports that are made by one call: a few seconds' work for Neutron.
const LARGEST: usize = 50;
/// So many ports are not divided among several calls.
const SMALLEST: usize = 8;
/// Of so many calls that may be in flight, one may make ports.
const SHARE: usize = 4;
const STEP: &str = "make a port";

type Made = Result<Port, OpenStackError>;

/// Makes ports, each for somebody who waits for it.
///
/// Who comes while few calls are under way is not kept waiting. The others are in the next calls, many in one: that
/// takes Neutron about half of the time of as many calls. A call begins and ends whoever gives up meanwhile, so that
/// nobody's port is made twice because another one gave up.
#[derive(Clone, Debug)]
pub(crate) struct Creation {
    neutron: Neutron,
    /// How many calls may be under way.
    most: usize,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Wanted>,
    /// How many calls are under way.
    calls: usize,
}

/// A port for which somebody waits.
#[derive(Debug)]
struct Wanted {
    port: NewPort,
    caller: oneshot::Sender<Made>,
}

impl Creation {
    /// By a quarter of the calls that may be in flight.
    pub(crate) fn new(neutron: Neutron) -> Self {
        let most = neutron.max_concurrency().div_ceil(SHARE);
        Self { neutron, most, queue: Arc::default() }
    }

    /// Makes a port.
    pub(crate) async fn make(&self, port: NewPort) -> Made {
        let (caller, made) = oneshot::channel();
        if self.queue().enter(Wanted { port, caller }, self.most) {
            tokio::spawn(self.clone().work());
        }
        made.await.unwrap_or_else(|_| Err(unanswered("the call was given up").maybe_done(true)))
    }

    /// Makes ports for as long as somebody waits.
    async fn work(self) {
        loop {
            let Some(lot) = self.queue().next(self.most) else { return };
            let this = self.clone();
            // A panic ends this lot, and the next one is made all the same.
            drop(tokio::spawn(async move { this.make_lot(lot).await }).await);
        }
    }

    async fn make_lot(&self, lot: Vec<Wanted>) {
        if lot.len() == 1 {
            return self.one_by_one(lot).await;
        }
        let ports: Vec<&NewPort> = lot.iter().map(|wanted| &wanted.port).collect();
        match self.neutron.create_ports("make ports of pods", &ports).await {
            Ok(made) => hand_out(lot, made),
            Err(error) if concerns_one(&error) => self.one_by_one(lot).await,
            Err(error) => lot.into_iter().for_each(|wanted| wanted.answer(Err(error.clone()))),
        }
    }

    /// Makes each by a call of its own, so that who asks for what cannot be has the refusal alone.
    async fn one_by_one(&self, lot: Vec<Wanted>) {
        let each = lot.into_iter().filter(|wanted| !wanted.caller.is_closed()).map(|wanted| async {
            let made = self.neutron.create_port(STEP, &wanted.port).await;
            wanted.answer(made);
        });
        join_all(each).await;
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Takes one in. Answers whether a call may begin.
    fn enter(&mut self, wanted: Wanted, most: usize) -> bool {
        self.waiting.push_back(wanted);
        let begins = self.calls < most;
        self.calls += usize::from(begins);
        begins
    }

    /// What the next call makes; none when nobody waits, and then there is one call fewer.
    fn next(&mut self, most: usize) -> Option<Vec<Wanted>> {
        self.waiting.retain(|wanted| !wanted.caller.is_closed());
        let size = lot(self.waiting.len(), most);
        if size == 0 {
            self.calls -= 1;
            return None;
        }
        Some(self.waiting.drain(..size).collect())
    }
}

impl Wanted {
    fn answer(self, made: Made) {
        // Who gave up finds the port by its mark.
        drop(self.caller.send(made));
    }
}

/// How many of those who wait the next call serves: its share of them, where that is worth a call.
fn lot(waiting: usize, calls: usize) -> usize {
    waiting.div_ceil(calls.max(1)).clamp(SMALLEST, LARGEST).min(waiting)
}

/// Whether one of many ports may be what was refused, or their number. Who says when to come again has not looked at them.
fn concerns_one(error: &OpenStackError) -> bool {
    let looked_at = |status| {
        (400..500).contains(&status) && ![401, 408, 429].contains(&status) && error.retry_after().is_none()
    };
    !error.ambiguous() && error.status().is_some_and(looked_at)
}

/// Gives everybody the port that bears his mark: in which order Neutron tells of them is its own affair.
fn hand_out(lot: Vec<Wanted>, mut made: Vec<Port>) {
    for wanted in lot {
        let NewPort { description, network_id, .. } = &wanted.port;
        let its =
            made.iter().position(|port| port.description == *description && port.network_id == *network_id);
        let port = its.map(|its| made.swap_remove(its));
        wanted
            .answer(port.ok_or_else(|| unanswered("the answer does not tell of this port").maybe_done(true)));
    }
}

fn unanswered(why: &str) -> OpenStackError {
    OpenStackError::new(STEP, Problem::Unanswered(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_are_divided_among_the_calls_where_that_is_worth_it() {
        assert_eq!(
            [0, 1, 8, 9, 32, 33, 40, 200, 1000].map(|waiting| lot(waiting, 4)),
            [0, 1, 8, 8, 8, 9, 10, 50, 50]
        );
        assert_eq!([7, 30, 90].map(|waiting| lot(waiting, 1)), [7, 30, 50]);
    }

    #[test]
    fn only_what_one_port_may_be_the_cause_of_is_tried_one_by_one() {
        let refused = |status| {
            let refusal = crate::error::Refusal { status, kind: None, message: String::new() };
            OpenStackError::new(STEP, Problem::Refused(refusal))
        };
        for (status, one) in
            [(400, true), (404, true), (409, true), (413, true), (401, false), (429, false), (503, false)]
        {
            assert_eq!(concerns_one(&refused(status)), one, "{status}");
        }
        let later = refused(413).after(Some(std::time::Duration::from_secs(7)));
        assert!(!concerns_one(&later), "it was not too large, but too much");
        assert!(!concerns_one(&refused(409).maybe_done(true)));
        assert!(!concerns_one(&unanswered("the connection was closed")));
    }
}
