//! Whether ports are ACTIVE: one list answers for many.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use staffetta_driver::{DriverError, Reason, Vif, VifId};
use tokio::time::Instant;

use super::api::Neutron;
use super::board::{Board, End, Known, Mending};
use super::together::Together;
use super::translate::Binding;
use super::wire::Port;

/// What a look at a port shows that is bound by itself.
const BOUND: &[&str] = &["id", "status", "binding:vif_type"];
/// What a look at a subport shows. Its node has Neutron bind it, and again when it is attached again: a binding that failed is no
/// end of the wait.
const SUBPORT: &[&str] = &["id", "status"];
const STEP: &str = "read the status of a port";

/// Looks at ports on behalf of all who wait for one.
#[derive(Debug)]
pub(crate) struct Activations {
    neutron: Neutron,
    fields: &'static [&'static str],
    board: Mutex<Board>,
    looks: Together<VifId, Result<Known, DriverError>>,
}

/// Where a port stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Packets pass.
    Active,
    /// Not yet.
    Waiting {
        /// When it is worth asking again.
        ask_again: Duration,
        /// What may help.
        mending: Mending,
    },
    /// Its binding failed. It is never said of subports.
    Failed,
}

impl Activations {
    /// Nobody waits yet for ports that are bound by themselves.
    pub(crate) fn of_bound(neutron: Neutron) -> Self {
        Self::asking(neutron, BOUND)
    }

    /// Nobody waits yet for subports.
    pub(crate) fn of_subports(neutron: Neutron) -> Self {
        Self::asking(neutron, SUBPORT)
    }

    fn asking(neutron: Neutron, fields: &'static [&'static str]) -> Self {
        Self { neutron, fields, board: Mutex::default(), looks: Together::default() }
    }

    /// The wait for a port that was made just now begins.
    pub(crate) fn made(&self, id: &VifId) {
        self.board().made(id, Instant::now());
    }

    /// The wait for a port ends.
    pub(crate) fn forget(&self, id: &VifId) {
        self.board().forget(id);
    }

    /// Somebody begins to help a port, or is done.
    pub(crate) fn mends(&self, id: &VifId, done: bool) {
        self.board().mends(id, done);
    }

    /// Where the port of `vif` stands. It is asked for only when what is known of it is too old.
    pub(crate) async fn progress(&self, vif: &Vif) -> Result<Progress, DriverError> {
        let known = self.board().ask(&vif.id, Instant::now());
        let known = match known {
            Some(known) => known,
            None => self.looks.call(vif.id.clone(), |ids| self.look(ids)).await?,
        };
        match known {
            Known::Over(End::Active) => Ok(Progress::Active),
            Known::Over(End::Failed) => Ok(Progress::Failed),
            Known::Over(End::Gone) => {
                let detail = format!("port {} does not exist any more; somebody removed it", vif.id);
                Err(DriverError::new(Reason::NotFound, STEP).detail(detail))
            }
            Known::Down { ask_again, waited } => {
                let mending = self.board().mending(&vif.id, waited);
                Ok(Progress::Waiting { ask_again, mending })
            }
        }
    }

    /// Looks at these and at what else is due soon.
    async fn look(&self, ids: Vec<VifId>) -> Vec<Result<Known, DriverError>> {
        let began = Instant::now();
        // The look for which they waited may have taken some of them along.
        let known: Vec<Option<Known>> = {
            let mut board = self.board();
            ids.iter().map(|id| board.ask(id, began)).collect()
        };
        let unknown = ids.iter().zip(&known).filter(|(_, known)| known.is_none());
        let unknown: Vec<VifId> = unknown.map(|(id, _)| id.clone()).collect();
        let looked = if unknown.is_empty() { Ok(()) } else { self.look_at(&unknown, began).await };
        let mut board = self.board();
        let answer = |(id, known): (&VifId, Option<Known>)| match (known, &looked) {
            (Some(known), _) => Ok(known),
            (None, Ok(())) => Ok(board.answer(id, Instant::now())),
            (None, Err(error)) => Err(error.clone()),
        };
        ids.iter().zip(known).map(answer).collect()
    }

    async fn look_at(&self, ids: &[VifId], began: Instant) -> Result<(), DriverError> {
        let lot = self.board().lot(ids, began);
        let ports = self.neutron.ports_by_id(STEP, &lot, self.fields).await?;
        let ports: HashMap<VifId, Port> = ports.into_iter().map(|port| (port.id.clone(), port)).collect();
        let mut board = self.board();
        board.ended(lot.len(), began, Instant::now());
        board.saw(
            lot.into_iter().map(|id| {
                let end = end(ports.get(&id));
                (id, end)
            }),
            began,
        );
        Ok(())
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(port: Option<&Port>) -> Option<End> {
    match port {
        None => Some(End::Gone),
        Some(port) if port.active() => Some(End::Active),
        Some(port) if Binding::of(port) == Binding::Failed => Some(End::Failed),
        Some(_) => None,
    }
}
