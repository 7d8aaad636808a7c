//! The ledger as the network keeps it: numbered, and bounded.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use crate::ledger::Entry;
use crate::wire::Page;

/// How many entries one answer holds: about 400 KB.
const PAGE: usize = 1_000;

/// The entries, oldest first.
#[derive(Debug)]
pub(super) struct Book {
    remembered: NonZeroUsize,
    forgotten: u64,
    entries: VecDeque<Entry>,
}

impl Book {
    /// An empty book that remembers so many entries.
    pub(super) fn new(remembered: NonZeroUsize) -> Self {
        Self { remembered, forgotten: 0, entries: VecDeque::new() }
    }

    /// Gives the entry the next number and writes it down.
    pub(super) fn enter(&mut self, entry: Entry) {
        if self.entries.len() == self.remembered.get() {
            self.entries.pop_front();
            self.forgotten += 1;
        }
        let number = self.forgotten + self.entries.len() as u64 + 1;
        self.entries.push_back(Entry { number, ..entry });
    }

    /// The entries behind number `after`, as many as one answer holds.
    pub(super) fn page(&self, after: u64) -> Page {
        let skipped = usize::try_from(after.saturating_sub(self.forgotten)).unwrap_or(usize::MAX);
        let entries = self.entries.iter().skip(skipped).take(PAGE).cloned().collect();
        Page { forgotten: self.forgotten, entries }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::ledger::{Effect, Kind};
    use crate::method::Method;

    fn book(remembered: usize, entries: usize) -> Book {
        let mut book = Book::new(NonZeroUsize::new(remembered).unwrap());
        for id in 1..=entries {
            book.enter(Entry {
                number: 0,
                at: Timestamp::UNIX_EPOCH,
                call: Method::RequestVif,
                request_id: None,
                cluster: "east".into(),
                effect: Effect::Made,
                kind: Kind::Port,
                id: id.to_string(),
                owner: None,
                addresses: Vec::new(),
            });
        }
        book
    }

    fn numbers(page: &Page) -> Vec<(u64, &str)> {
        page.entries.iter().map(|entry| (entry.number, entry.id.as_str())).collect()
    }

    #[test]
    fn entries_are_numbered_without_gaps_and_the_oldest_are_forgotten() {
        let book = book(3, 5);
        let page = book.page(0);
        assert_eq!((page.forgotten, numbers(&page)), (2, vec![(3, "3"), (4, "4"), (5, "5")]));
        assert_eq!(numbers(&book.page(1)), numbers(&page));
        assert_eq!(numbers(&book.page(4)), [(5, "5")]);
        assert_eq!(numbers(&book.page(5)), []);
        assert_eq!(numbers(&book.page(u64::MAX)), []);
    }

    #[test]
    fn an_answer_holds_a_page_at_most() {
        let book = book(PAGE + 2, PAGE + 2);
        assert_eq!(book.page(0).entries.len(), PAGE);
        assert_eq!(book.page(PAGE as u64).entries.len(), 2);
    }
}
