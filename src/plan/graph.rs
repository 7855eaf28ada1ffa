//! The steps of a plan in an order that holds: a directed graph without cycles.
//!
//! Built from the plan alone. What two hosts share (an account's preflight, an image) is one step.

use std::collections::BTreeMap;

use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef as _;

use super::{HostPlan, Plan, PlannedStep};
use crate::model::{AccountName, HostName, Machine, MachineSpec, Size};

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Whose it is; `None` where hosts share it.
    pub host: Option<HostName>,
    /// The account that it asks.
    pub account: AccountName,
    /// What to do.
    pub kind: StepKind,
}

/// What a step does, with everything it needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepKind {
    /// Check that the account can be used.
    Preflight,
    /// Have an image or template at hand.
    Image(MachineSpec),
    /// Make a machine.
    Create(MachineSpec),
    /// Start the machine, which is the given one or the one that the plan entry made.
    Start(Option<Machine>),
    /// Install the helper on it.
    Bootstrap(Option<Machine>),
    /// Change the size of a machine.
    Resize(Machine, Size),
    /// Stop a machine.
    Stop(Machine),
    /// Destroy a machine.
    Destroy(Machine),
}

impl StepKind {
    /// The word for people and events.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Preflight => "preflight",
            Self::Image(_) => "image",
            Self::Create(_) => "create",
            Self::Start(_) => "start",
            Self::Bootstrap(_) => "bootstrap",
            Self::Resize(..) => "resize",
            Self::Stop(_) => "stop",
            Self::Destroy(_) => "destroy",
        }
    }
}

/// Steps and the order between them.
#[derive(Debug, Clone, Default)]
pub struct StepGraph {
    graph: DiGraph<Step, ()>,
    /// The plan entry that a step belongs to, by step; shared steps have none.
    entries: BTreeMap<usize, usize>,
}

impl StepGraph {
    /// How many steps there are. Steps are numbered from 0.
    pub fn len(&self) -> usize {
        self.graph.node_count()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A step by its number.
    pub fn step(&self, number: usize) -> &Step {
        &self.graph[NodeIndex::new(number)]
    }

    /// Which entry of the plan it belongs to; `None` for a shared one.
    pub fn entry(&self, number: usize) -> Option<usize> {
        self.entries.get(&number).copied()
    }

    /// The steps that must be done before it.
    pub fn needs(&self, number: usize) -> impl Iterator<Item = usize> {
        let incoming =
            self.graph.edges_directed(NodeIndex::new(number), petgraph::Direction::Incoming);
        incoming.map(|edge| edge.source().index())
    }

    /// The steps that wait for it.
    pub fn unlocks(&self, number: usize) -> impl Iterator<Item = usize> {
        self.graph.neighbors(NodeIndex::new(number)).map(NodeIndex::index)
    }

    /// An order in which every step comes after what it needs.
    ///
    /// # Panics
    /// Never: [`graph`] makes no cycles, and a property test says so.
    pub fn order(&self) -> Vec<usize> {
        let order = petgraph::algo::toposort(&self.graph, None).expect("the graph has no cycle");
        order.into_iter().map(NodeIndex::index).collect()
    }
}

/// Orders the steps of a plan.
pub fn graph(plan: &Plan) -> StepGraph {
    let mut builder = Builder::default();
    for (index, entry) in plan.hosts.iter().enumerate() {
        builder.entry(index, entry);
    }
    builder.steps
}

#[derive(Default)]
struct Builder {
    steps: StepGraph,
    preflights: BTreeMap<AccountName, NodeIndex>,
    images: BTreeMap<(AccountName, BTreeMap<String, String>), NodeIndex>,
}

impl Builder {
    fn entry(&mut self, index: usize, entry: &HostPlan) {
        let mut last: Option<NodeIndex> = None;
        let mut fresh = false;
        for planned in &entry.steps {
            let existing = if fresh { None } else { entry.machine.clone() };
            let Some((account, kind)) = kind(entry, planned, existing) else { continue };
            let preflight = self.preflight(&account);
            let image = match &kind {
                StepKind::Image(spec) => Some(self.image(spec, preflight)),
                _ => None,
            };
            let node = image.unwrap_or_else(|| {
                let step = Step { host: Some(entry.host.clone()), account, kind };
                let node = self.steps.graph.add_node(step);
                self.steps.entries.insert(node.index(), index);
                self.steps.graph.add_edge(preflight, node, ());
                node
            });
            if let Some(last) = last {
                self.steps.graph.update_edge(last, node, ());
            }
            last = Some(node);
            fresh |= *planned == PlannedStep::Create;
        }
    }

    fn preflight(&mut self, account: &AccountName) -> NodeIndex {
        let graph = &mut self.steps.graph;
        *self.preflights.entry(account.clone()).or_insert_with(|| {
            graph.add_node(Step { host: None, account: account.clone(), kind: StepKind::Preflight })
        })
    }

    fn image(&mut self, spec: &MachineSpec, preflight: NodeIndex) -> NodeIndex {
        let graph = &mut self.steps.graph;
        let mut settings = spec.settings.clone();
        settings.remove("name");
        *self.images.entry((spec.account.clone(), settings)).or_insert_with(|| {
            let kind = StepKind::Image(spec.clone());
            let node = graph.add_node(Step { host: None, account: spec.account.clone(), kind });
            graph.add_edge(preflight, node, ());
            node
        })
    }
}

/// The step of a planned one, and the account that it asks: the machine's, or the new one's.
fn kind(
    entry: &HostPlan,
    planned: &PlannedStep,
    existing: Option<Machine>,
) -> Option<(AccountName, StepKind)> {
    let make = || entry.make.clone();
    let there = existing.as_ref().map_or(&entry.account, |machine| &machine.account).clone();
    Some(match planned {
        PlannedStep::Image => (entry.account.clone(), StepKind::Image(make()?)),
        PlannedStep::Create => (entry.account.clone(), StepKind::Create(make()?)),
        PlannedStep::Start => (there, StepKind::Start(existing)),
        PlannedStep::Bootstrap => (there, StepKind::Bootstrap(existing)),
        PlannedStep::Resize { to } => (there, StepKind::Resize(existing?, *to)),
        PlannedStep::Stop => (there, StepKind::Stop(existing?)),
        PlannedStep::Destroy => (there, StepKind::Destroy(existing?)),
    })
}
