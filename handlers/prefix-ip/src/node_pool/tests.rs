use super::*;
use proptest::prelude::*;
use staffetta_driver::{DriverError, Reason};

const COOL_DOWN: Duration = Duration::from_secs(30);
const SLOTS: usize = 9;

fn settings(prefix_delegation: bool) -> Settings {
    Settings {
        enabled: true,
        prefix_delegation,
        prefixes: Targets::Addresses { warm: 1, minimum: 3 },
        addresses: Targets::Addresses { warm: 3, minimum: 3 },
    }
}

/// The interface of an m5.large, with a provider that assigns the lowest free block.
struct Cloud(PrimaryInterface);

impl Cloud {
    fn new() -> Self {
        Self(PrimaryInterface {
            id: "eni-1".into(),
            subnet: "subnet-1".into(),
            subnet_length: 19,
            addresses_per_interface: SLOTS + 1,
            delegates_prefixes: true,
            blocks: BTreeSet::new(),
        })
    }

    fn assign(&mut self, kind: BlockKind, count: usize) -> Vec<Ipv4Net> {
        let (range, length) = match kind {
            BlockKind::Prefix => ("10.0.0.0/20", 28),
            BlockKind::Address => ("10.1.0.0/24", 32),
        };
        let all = range.parse::<Ipv4Net>().unwrap().subnets(length).unwrap();
        let new: Vec<_> = all.filter(|block| !self.0.blocks.contains(block)).take(count).collect();
        self.0.blocks.extend(&new);
        assert!(self.0.blocks.len() <= SLOTS, "P5: the interface has no more slots");
        new
    }

    /// Executes the actions of a node until there are none.
    fn serve(&mut self, node: &mut NodePool, now: Duration) {
        node.confirm(now, now, Some(&BTreeSet::new()));
        for _ in 0..10 {
            let actions = node.plan(now);
            if actions.is_empty() {
                return;
            }
            for action in actions {
                let NodeAction { kind, action } = action;
                match action {
                    Action::Grow { op, count, .. } => {
                        let got = self.assign(kind, count);
                        assert!(!node.assigned(op, kind, count, got, None, now));
                    }
                    Action::Shrink { op, groups: blocks } => {
                        self.0.blocks.retain(|block| !blocks.contains(block));
                        node.unassigned(op, kind, &blocks, None, now);
                    }
                }
            }
        }
        panic!("it does not come to rest");
    }
}

fn pod(number: usize) -> Uid {
    format!("pod-{number}").into()
}

#[test]
fn an_m5_large_has_room_for_144_pods_with_prefixes_and_for_9_without() {
    let mut node = NodePool::new(&Cloud::new().0, settings(true), COOL_DOWN, Duration::ZERO);
    assert_eq!((node.active(), node.capacity(Duration::ZERO)), (BlockKind::Prefix, 144));
    node.configure(settings(false), Duration::ZERO);
    assert_eq!((node.active(), node.capacity(Duration::ZERO)), (BlockKind::Address, 9));
    node.configure(Settings { enabled: false, ..settings(true) }, Duration::ZERO);
    assert_eq!(node.capacity(Duration::ZERO), 0);
}

#[test]
fn pods_fill_the_prefix_with_the_fewest_free_addresses_and_keep_their_own() {
    let (mut cloud, now) = (Cloud::new(), Duration::ZERO);
    let mut node = NodePool::new(&cloud.0, settings(true), COOL_DOWN, now);
    assert_eq!(node.take(&pod(0), now), Err(Wait::Growing));
    cloud.serve(&mut node, now);
    assert_eq!(node.wake(now), [pod(0)]);
    for number in 0..17 {
        let taken = node.take(&pod(number), now).unwrap();
        assert_eq!(node.take(&pod(number), now), Ok(taken), "it is asked for again");
        assert_eq!(taken.length, 32);
        cloud.serve(&mut node, now);
    }
    assert_eq!(cloud.0.blocks.len(), 2);
    assert_eq!(node.address_of(&pod(0)).unwrap().address, Ipv4Addr::new(10, 0, 0, 0));
    assert_eq!(node.address_of(&pod(16)).unwrap().address, Ipv4Addr::new(10, 0, 0, 16));
    node.give_back(&pod(3), now);
    assert_eq!(
        node.take(&pod(17), now).unwrap().address,
        Ipv4Addr::new(10, 0, 0, 17),
        "the other one cools down"
    );
    assert_eq!(node.take(&pod(18), now + COOL_DOWN).unwrap().address, Ipv4Addr::new(10, 0, 0, 3));
}

#[test]
fn a_change_of_the_kind_takes_no_address_from_a_pod_and_shares_the_slots() {
    let (mut cloud, now) = (Cloud::new(), Duration::ZERO);
    let mut node = NodePool::new(&cloud.0, settings(false), COOL_DOWN, now);
    cloud.serve(&mut node, now);
    let old = node.take(&pod(0), now).unwrap();
    assert_eq!(old.length, 19, "a single address has the length of its subnet");
    cloud.serve(&mut node, now);
    node.configure(settings(true), now);
    cloud.serve(&mut node, now);
    assert_eq!(node.take(&pod(0), now), Ok(old));
    assert_eq!(node.take(&pod(1), now).unwrap().length, 32);
    let of = |kind, cloud: &Cloud| {
        cloud.0.blocks.iter().filter(|block| BlockKind::of(**block) == Some(kind)).count()
    };
    assert_eq!((of(BlockKind::Address, &cloud), of(BlockKind::Prefix, &cloud)), (1, 1));
    assert_eq!(node.capacity(now), 128, "one slot is not free yet");
    node.give_back(&pod(0), now);
    cloud.serve(&mut node, now + COOL_DOWN);
    assert_eq!(of(BlockKind::Address, &cloud), 0, "no pod needs it any more");
}

#[test]
fn a_restart_knows_the_addresses_of_the_pods_and_reuses_no_other_before_the_cool_down() {
    let (mut cloud, now) = (Cloud::new(), Duration::ZERO);
    cloud.assign(BlockKind::Prefix, 1);
    let mut node = NodePool::new(&cloud.0, settings(true), COOL_DOWN, now);
    assert_eq!(node.adopt(&pod(0), Ipv4Addr::new(10, 0, 0, 5)), Adopted::Held);
    assert_eq!(node.adopt(&pod(1), Ipv4Addr::new(10, 0, 0, 5)), Adopted::Shared(pod(0)));
    assert_eq!(node.adopt(&pod(2), Ipv4Addr::new(192, 0, 2, 1)), Adopted::Unknown);
    assert!(node.plan(now).is_empty(), "nothing is assigned before a pod needs it");
    assert_eq!(node.take(&pod(3), now), Err(Wait::Growing));
    cloud.serve(&mut node, now);
    assert_eq!(node.take(&pod(3), now).unwrap().address, Ipv4Addr::new(10, 0, 0, 16));
    let later = now + COOL_DOWN;
    node.confirm(later, later, None);
    assert!(node.take(&pod(5), later).unwrap().address >= Ipv4Addr::new(10, 0, 0, 16), "the read failed");
    let again = node.confirm_at().unwrap();
    node.confirm(again, again, Some(&[Ipv4Addr::new(10, 0, 0, 0)].into()));
    assert_eq!(
        node.take(&pod(4), again).unwrap().address,
        Ipv4Addr::new(10, 0, 0, 1),
        "a pod shows the other"
    );
}

#[test]
fn drift_of_the_interface_is_repaired_and_a_lost_address_is_reported_with_its_pod() {
    let (mut cloud, now) = (Cloud::new(), Duration::ZERO);
    let mut node = NodePool::new(&cloud.0, settings(true), COOL_DOWN, now);
    cloud.serve(&mut node, now);
    let taken = node.take(&pod(0), now).unwrap();
    let strange: Ipv4Net = "10.0.9.0/28".parse().unwrap();
    let drift = node.resync(node.epoch(), &[strange].into(), now);
    assert_eq!((drift.found, drift.lost), (vec![strange], vec![]), "one read may be wrong");
    assert!(node.lacks_confirmation());
    let drift = node.resync(node.epoch(), &[strange].into(), now);
    assert_eq!((drift.found, drift.lost.len()), (vec![], 1));
    assert_eq!(drift.lost_in_use, [(taken.address, pod(0))]);
    assert_eq!(node.address_of(&pod(0)), None, "it is handed out to nobody");
    let block = Ipv4Net::new(taken.address, 28).unwrap().trunc();
    let drift = node.resync(node.epoch(), &[strange, block].into(), now);
    assert_eq!(drift.found, [block]);
    assert_eq!(node.address_of(&pod(0)), Some(taken), "it is the pod's again");
}

#[test]
fn a_pod_whose_block_a_read_does_not_show_yet_has_its_address_as_soon_as_one_does() {
    let (mut cloud, now) = (Cloud::new(), Duration::ZERO);
    let before = cloud.0.clone();
    cloud.assign(BlockKind::Prefix, 1);
    let mut node = NodePool::new(&before, settings(true), COOL_DOWN, now);
    let address = Ipv4Addr::new(10, 0, 0, 5);
    assert_eq!(node.adopt(&pod(0), address), Adopted::Unknown);
    assert_eq!(node.adopt(&pod(1), address), Adopted::Unknown);
    node.resync(node.epoch(), &cloud.0.blocks, now);
    assert_eq!(node.address_of(&pod(0)).map(|held| held.address), Some(address));
    assert_eq!(node.address_of(&pod(1)), None, "the first one has it");
    node.give_back(&pod(1), now);
    assert_eq!(node.address_of(&pod(0)).map(|held| held.address), Some(address));
}

#[test]
fn a_block_of_another_length_takes_a_slot_and_is_reported_once() {
    let (mut cloud, now) = (Cloud::new(), Duration::ZERO);
    let strange: Ipv4Net = "10.0.9.0/29".parse().unwrap();
    cloud.0.blocks.insert(strange);
    let mut node = NodePool::new(&cloud.0, settings(true), COOL_DOWN, now);
    assert_eq!(node.capacity(now), 128, "also before the second read");
    let drift = node.resync(node.epoch(), &cloud.0.blocks, now);
    assert_eq!(drift.unusable, [strange]);
    assert_eq!(node.resync(node.epoch(), &cloud.0.blocks, now), InterfaceDrift::default());
    assert_eq!(node.capacity(now), 128);
    for number in 0..200 {
        let _ = node.take(&pod(number), now);
    }
    // It panics if it requests more than there is room for.
    cloud.serve(&mut node, now);
    assert_eq!(cloud.0.blocks.len(), SLOTS);
}

#[test]
fn a_block_that_an_attempted_removal_may_have_removed_gives_no_address_before_a_read_shows_it() {
    let (mut cloud, mut now) = (Cloud::new(), Duration::ZERO);
    let mut node = NodePool::new(&cloud.0, settings(true), COOL_DOWN, now);
    for number in 0..40 {
        let _ = node.take(&pod(number), now);
    }
    cloud.serve(&mut node, now);
    let mut removed = Vec::new();
    for number in 0..40 {
        node.give_back(&pod(number), now);
    }
    for attempt in 0..4 {
        let action = loop {
            now += Duration::from_secs(1);
            assert!(now < COOL_DOWN * 20, "nothing is removed");
            if let Some(NodeAction { kind, action: Action::Shrink { op, groups } }) =
                node.plan(now).into_iter().next()
            {
                break (op, kind, groups);
            }
        };
        let (op, kind, blocks) = action;
        let error = DriverError::new(Reason::Unavailable, "remove");
        // The first attempt takes effect, and its response is lost. The later ones are not sent.
        let error = if attempt == 0 { error.maybe_applied() } else { error };
        cloud.0.blocks.retain(|block| !blocks.contains(block));
        node.unassigned(op, kind, &blocks, Some(&error), now);
        removed = blocks;
    }
    for number in 0..40 {
        if let Ok(held) = node.take(&pod(100 + number), now) {
            assert!(!removed.iter().any(|block| block.contains(&held.address)), "{}", held.address);
        }
    }
    let drift = node.resync(node.epoch(), &cloud.0.blocks, now);
    assert!(drift.lost_in_use.is_empty() && !removed.is_empty(), "{drift:?}");
}

/// An operation of a test case.
#[derive(Clone, Copy, Debug)]
enum Act {
    Take(usize),
    GiveBack(usize),
    Pass(u64),
    /// Executes an action in part: so many of its blocks, and with a failure or without.
    SizeChange {
        made: usize,
        fails: bool,
    },
    Switch(bool),
    Restart,
    /// Executes the actions, so many blocks of each, and ends before their results are recorded.
    Crash {
        made: usize,
    },
    /// Executes the actions, so many blocks of each, and loses the answers.
    Unanswered {
        made: usize,
    },
    /// Restarts with a read that is older than the last actions.
    OldRead,
    /// Somebody else removes a block.
    Steal(usize),
    Read,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (0..40_usize).prop_map(Act::Take),
        5 => (0..40_usize).prop_map(Act::GiveBack),
        3 => (0..40_u64).prop_map(Act::Pass),
        8 => (0..9_usize, any::<bool>()).prop_map(|(made, fails)| Act::SizeChange { made, fails }),
        1 => any::<bool>().prop_map(Act::Switch),
        1 => Just(Act::Restart),
        1 => (0..9_usize).prop_map(|made| Act::Crash { made }),
        1 => (0..9_usize).prop_map(|made| Act::Unanswered { made }),
        1 => Just(Act::OldRead),
        1 => (0..9_usize).prop_map(Act::Steal),
        2 => Just(Act::Read),
    ];
    prop::collection::vec(act, 1..200)
}

/// A node, its cloud, and what its pods show in their annotations.
struct World {
    cloud: Cloud,
    /// The interface before the last actions.
    before: PrimaryInterface,
    node: NodePool,
    shown: BTreeMap<usize, Ipv4Addr>,
    /// The time at which each address was returned last.
    returned: BTreeMap<Ipv4Addr, Duration>,
    settings: Settings,
    now: Duration,
    /// The time by which the interface must be read, because the node may not know it; `None` if it does.
    read_by: Option<Duration>,
}

impl World {
    fn new() -> Self {
        let (cloud, settings, now) = (Cloud::new(), settings(true), Duration::ZERO);
        let node = NodePool::new(&cloud.0, settings, COOL_DOWN, now);
        let (before, shown, returned) = (cloud.0.clone(), BTreeMap::new(), BTreeMap::new());
        Self { cloud, before, node, shown, returned, settings, now, read_by: None }
    }

    /// Returns `true` if the block of an address is assigned.
    fn exists(&self, address: Ipv4Addr) -> bool {
        self.cloud.0.blocks.iter().any(|block| block.contains(&address))
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Take(number) => self.take(number),
            Act::GiveBack(number) => {
                self.node.give_back(&pod(number), self.now);
                if let Some(address) = self.shown.remove(&number)
                    && self.exists(address)
                {
                    self.returned.insert(address, self.now);
                }
            }
            Act::Pass(seconds) => {
                let end = self.now + Duration::from_secs(seconds);
                if let Some(due) = self.read_by.filter(|due| *due <= end) {
                    self.now = due;
                    self.read();
                }
                self.now = end;
            }
            Act::SizeChange { made, fails } => self.plan(made, fails),
            Act::Switch(prefix_delegation) => {
                self.settings = settings(prefix_delegation);
                self.node.configure(self.settings, self.now);
            }
            Act::Restart => self.restart(&self.cloud.0.clone()),
            Act::Crash { made } => {
                self.execute(made);
                self.restart(&self.cloud.0.clone());
            }
            Act::Unanswered { made } => self.lose_answers(made),
            Act::OldRead => {
                self.restart(&self.before.clone());
                self.read_by = Some(self.now + COOL_DOWN / 2);
            }
            Act::Steal(number) => {
                if let Some(block) = self.cloud.0.blocks.iter().nth(number).copied() {
                    self.cloud.0.blocks.remove(&block);
                    self.returned.retain(|address, _| !block.contains(address));
                    self.read_by = Some(self.now);
                }
            }
            Act::Read => self.read(),
        }
        self.check();
    }

    fn take(&mut self, number: usize) {
        // A running pod whose block is not known does not ask.
        if self.shown.contains_key(&number) && self.node.address_of(&pod(number)).is_none() {
            return;
        }
        let Ok(taken) = self.node.take(&pod(number), self.now) else { return };
        let before = self.shown.insert(number, taken.address);
        assert!(before.is_none_or(|before| before == taken.address), "P9: the same address again");
        if before.is_none() {
            let returned = self.returned.get(&taken.address);
            let cooled = returned.is_none_or(|returned| self.now >= *returned + COOL_DOWN);
            assert!(cooled, "P8: it is handed out after its cool-down");
            assert!(self.read_by.is_some() || self.exists(taken.address), "P3: its block is assigned");
        }
    }

    fn read(&mut self) {
        for _ in 0..2 {
            self.node.resync(self.node.epoch(), &self.cloud.0.blocks, self.now);
        }
        self.node.confirm(self.now, self.now, Some(&BTreeSet::new()));
        self.read_by = None;
    }

    fn restart(&mut self, interface: &PrimaryInterface) {
        self.node = NodePool::new(interface, self.settings, COOL_DOWN, self.now);
        self.read_by = None;
        for (number, address) in &self.shown {
            let is_known = interface.blocks.iter().any(|block| block.contains(address));
            let adopted = self.node.adopt(&pod(*number), *address);
            assert_eq!(adopted == Adopted::Held, is_known, "P11: {adopted:?}");
        }
    }

    /// Executes the actions in part, and returns them with what was done.
    fn execute(&mut self, made: usize) -> Vec<(NodeAction, Vec<Ipv4Net>)> {
        let actions = self.node.plan(self.now);
        if !actions.is_empty() {
            self.before = self.cloud.0.clone();
        }
        let mut done = Vec::new();
        for action in actions {
            let blocks = match &action.action {
                Action::Grow { count, .. } => {
                    // A node that does not know all its blocks may ask for more than there is room for.
                    let room = SLOTS - self.cloud.0.blocks.len();
                    assert!(self.read_by.is_some() || *count <= room, "P5: there is room for it");
                    self.cloud.assign(action.kind, (*count).min(made).min(room))
                }
                Action::Shrink { groups: blocks, .. } => {
                    let in_use = |block: &Ipv4Net| self.shown.values().any(|address| block.contains(address));
                    assert!(!blocks.iter().any(in_use), "P3: nothing in use is removed");
                    let gone = if made < blocks.len() { Vec::new() } else { blocks.clone() };
                    self.cloud.0.blocks.retain(|block| !gone.contains(block));
                    gone
                }
            };
            done.push((action, blocks));
        }
        done
    }

    fn plan(&mut self, made: usize, fails: bool) {
        for (action, done) in self.execute(made) {
            let NodeAction { kind, action } = action;
            match action {
                Action::Grow { op, count, .. } => {
                    let reason = if count > made { Reason::NoAddress } else { Reason::Conflict };
                    let error = (fails || done.is_empty()).then(|| DriverError::new(reason, "assign"));
                    let is_repeated = done.is_empty() && reason == Reason::NoAddress && count > 1;
                    let recorded =
                        self.node.assigned(op, kind, count, done.clone(), error.as_ref(), self.now);
                    assert_eq!(recorded, is_repeated);
                    let again = self.node.assigned(op, kind, count, done, error.as_ref(), self.now);
                    assert!(!again, "P9: it is reported once");
                }
                Action::Shrink { op, groups: blocks } => {
                    // The provider removes all of them or none.
                    let refused = DriverError::new(Reason::Refused, "remove");
                    let error = (done.len() < blocks.len()).then_some(refused);
                    self.node.unassigned(op, kind, &blocks, error.as_ref(), self.now);
                }
            }
        }
    }

    fn lose_answers(&mut self, made: usize) {
        let lost = DriverError::new(Reason::Unavailable, "change").maybe_applied();
        for (action, _) in self.execute(made) {
            let NodeAction { kind, action } = action;
            match action {
                Action::Grow { op, count, .. } => {
                    self.node.assigned(op, kind, count, Vec::new(), Some(&lost), self.now);
                }
                Action::Shrink { op, groups: blocks } => {
                    self.node.unassigned(op, kind, &blocks, Some(&lost), self.now);
                }
            }
            self.read_by = Some(self.now);
        }
    }

    fn check(&self) {
        let distinct: BTreeSet<_> = self.shown.values().collect();
        assert_eq!(distinct.len(), self.shown.len(), "P1: no two pods share an address");
        if self.read_by.is_some() {
            return;
        }
        for (number, address) in &self.shown {
            let held = self.node.address_of(&pod(*number)).map(|held| held.address);
            assert_eq!(
                held,
                self.exists(*address).then_some(*address),
                "P11: it has its address while that exists"
            );
        }
        let groups: usize = KINDS.iter().map(|kind| self.node.counts(*kind, self.now).groups).sum();
        assert_eq!(groups, self.cloud.0.blocks.len(), "P2: every block is known");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_node_obeys_the_laws_of_its_pools_for_any_order_of_events(acts in acts()) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        world.act(Act::Read);
        // Everything comes to rest: a pod that asks is served if there is room for it.
        for _ in 0..4 {
            world.now += Duration::from_secs(100);
            world.cloud.serve(&mut world.node, world.now);
        }
        prop_assert!(world.node.plan(world.now).is_empty(), "P6: no input, no change");
        let room = world.node.counts(world.node.active(), world.now);
        if room.used < world.node.capacity(world.now) && world.cloud.0.blocks.len() < SLOTS {
            let _ = world.node.take(&pod(1000), world.now);
            world.cloud.serve(&mut world.node, world.now);
            prop_assert!(world.node.take(&pod(1000), world.now).is_ok(), "P7: no needless refusal");
            world.node.give_back(&pod(1000), world.now);
        }
        for number in 0..40 {
            world.act(Act::GiveBack(number));
        }
        world.node.configure(Settings { enabled: false, ..world.settings }, world.now);
        for _ in 0..4 {
            world.now += Duration::from_secs(100);
            world.cloud.serve(&mut world.node, world.now);
        }
        prop_assert!(world.cloud.0.blocks.is_empty(), "P12: what is drained is removed");
    }
}
