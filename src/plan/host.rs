//! The decision for one host of the file.

use super::guard::Passed;
use super::{
    AccountFact, Action, Fact, HostPlan, Impact, Note, PlannedStep, Planner, Reason, Setting,
    StoppedBy, SurveyFact, Unknown,
};
use crate::config::Host;
use crate::history::Remembered;
use crate::model::{
    Abilities, IdleStop, IdleStopBy, Listing, Machine, MachineId, MachineState, Power, Resize, Size,
};

/// What becomes of a host, before it is written down as a [`HostPlan`].
struct Verdict {
    action: Action,
    reason: Reason,
    impact: Impact,
    settings: Vec<Setting>,
    notes: Vec<Note>,
    steps: Vec<PlannedStep>,
}

impl Verdict {
    fn plain(action: Action, reason: Reason) -> Self {
        Self {
            action,
            reason,
            impact: Impact::None,
            settings: Vec::new(),
            notes: Vec::new(),
            steps: Vec::new(),
        }
    }
}

impl<'a> Planner<'a> {
    /// The entry of a host, and entries for machines that it has too many.
    pub(super) fn host(&self, host: &'a Host) -> Vec<HostPlan> {
        let machines = self.machines_of(host);
        let used = match self.used(host, &machines) {
            Ok(used) => used,
            Err(reason) => {
                return vec![self.entry(host, None, Verdict::plain(Action::Blocked, reason))];
            }
        };
        let verdict = match (self.known(host), used) {
            (Err(verdict), _) => *verdict,
            (Ok(listing), None) => self.missing(host, listing),
            (Ok(_), Some(machine)) => self.existing(host, machine),
        };
        let mut entries = vec![self.entry(host, used, verdict)];
        if let (Some(used), false) = (used, self.policy.power_only) {
            let others = machines.iter().filter(|machine| machine.id != used.id);
            entries.extend(others.map(|machine| {
                let used = used.id.clone();
                self.orphan(machine, Reason::Duplicate { used })
            }));
        }
        entries
    }

    /// Which of several machines is in use: the one this computer used last, else the only one
    /// where a session ever ran, else the one made first.
    fn used(&self, host: &Host, machines: &[&'a Machine]) -> Result<Option<&'a Machine>, Reason> {
        let [_, _, ..] = machines else { return Ok(machines.first().copied()) };
        let history = &self.observed.history;
        let remembered = |machine: &&&'a Machine| history.machines.contains_key(&machine.id);
        let ran = |machine: &&&'a Machine| {
            history.machines.get(&machine.id).is_some_and(|m| m.sessions.flatten().is_some())
        };
        let used = history
            .used
            .iter()
            .rev()
            .find_map(|id| machines.iter().find(|machine| machine.id == *id));
        let first = machines.iter().map(|machine| machine.mark.made_at).min();
        let only = |found: Vec<&&'a Machine>| if let [one] = found[..] { Some(*one) } else { None };
        used.copied()
            .or_else(|| only(machines.iter().filter(ran).collect()))
            .or_else(|| only(machines.iter().filter(remembered).collect()))
            .or_else(|| only(machines.iter().filter(|m| Some(m.mark.made_at) == first).collect()))
            // A copy has everything of the original but its name.
            .or_else(|| {
                let name = host.machine_name();
                only(machines.iter().filter(|machine| machine.name == name).collect())
            })
            .map(Some)
            .ok_or_else(|| Reason::Ambiguous {
                ids: machines.iter().map(|machine| machine.id.clone()).collect(),
            })
    }

    /// The answer of the host's account, if nothing about the host is uncertain.
    fn known(&self, host: &'a Host) -> Result<&'a Listing, Box<Verdict>> {
        let listing = match self.observed.accounts.get(&host.account) {
            Some(AccountFact::Seen(listing)) => listing,
            Some(AccountFact::Unknown(unknown)) => {
                return Err(Box::new(Verdict::plain(
                    Action::Unknown,
                    Reason::NoAnswer(unknown.clone()),
                )));
            }
            None => {
                let unknown = Unknown { cause: "it was not asked".into(), ..Unknown::default() };
                return Err(Box::new(Verdict::plain(Action::Unknown, Reason::NoAnswer(unknown))));
            }
        };
        for (id, remembered) in self.remembered(host) {
            let Some(place) = self.listing(&remembered.account) else {
                let reason = Reason::Elsewhere { account: remembered.account.clone() };
                return Err(Box::new(Verdict::plain(Action::Unknown, reason)));
            };
            if self.seen.contains(id) {
                continue;
            }
            if remembered.identity != place.identity {
                if !self.policy.here {
                    let (was, now) = (remembered.identity.clone(), place.identity.clone());
                    let reason = Reason::OtherIdentity { was, now };
                    return Err(Box::new(Verdict::plain(Action::Blocked, reason)));
                }
            } else if !place.gone.contains(id) {
                let reason = Reason::Unsure { id: id.clone() };
                return Err(Box::new(Verdict::plain(Action::Unknown, reason)));
            }
        }
        Ok(listing)
    }

    fn remembered(&self, host: &'a Host) -> impl Iterator<Item = (&'a MachineId, &'a Remembered)> {
        let names = std::iter::once(&host.name).chain(&host.was);
        names.filter_map(|name| self.remembered.get(name)).flatten().copied()
    }

    /// There is no machine.
    fn missing(&self, host: &'a Host, listing: &Listing) -> Verdict {
        if host.power == Power::Off {
            return Verdict::plain(Action::None, Reason::OffNotMade);
        }
        let lost = self
            .remembered(host)
            .find(|(id, machine)| machine.account == host.account && listing.gone.contains(*id));
        let reason = match lost {
            Some((id, machine)) => Reason::Lost { id: id.clone(), seen: machine.at },
            None => Reason::NotMade,
        };
        let notes = match self.makeable(host) {
            Ok(notes) => notes,
            Err(reason) => return Verdict::plain(Action::Blocked, reason),
        };
        let mut verdict = Verdict::plain(Action::Create, reason);
        verdict.settings = Self::all_settings(host);
        verdict.notes = notes;
        verdict.steps = self.making(host);
        verdict
    }

    /// Whether a machine for the host could be made, and what is to know about it.
    fn makeable(&self, host: &Host) -> Result<Vec<Note>, Reason> {
        let name = host.machine_name();
        let taken = self.listing(&host.account).and_then(|listing| listing.taken.get(&name));
        if let Some(by) = taken {
            return Err(Reason::NameTaken { name, by: by.clone() });
        }
        let survey = match self.observed.surveys.get(&host.name) {
            None => {
                self.asks.borrow_mut().surveys.insert(host.name.clone());
                return Ok(Vec::new());
            }
            Some(SurveyFact::NotUsable(unknown)) => return Err(Reason::NotUsable(unknown.clone())),
            Some(SurveyFact::Usable(survey)) => survey,
        };
        let helpers = &self.observed.helpers;
        if let Some(architecture) = &survey.architecture
            && !helpers.contains(architecture)
        {
            let have = helpers.iter().cloned().collect();
            return Err(Reason::NoHelper { architecture: architecture.clone(), have });
        }
        let fetches = self.abilities(host).needs_image && !survey.image_present;
        Ok(fetches.then_some(Note::FetchesImage).into_iter().collect())
    }

    fn abilities(&self, host: &Host) -> &'a Abilities {
        &self.config.accounts.get(&host.account).expect("every host has its account").abilities
    }

    fn making(&self, host: &Host) -> Vec<PlannedStep> {
        let mut steps = Vec::new();
        if self.abilities(host).needs_image {
            steps.push(PlannedStep::Image);
        }
        steps.push(PlannedStep::Create);
        if host.power != Power::Off {
            steps.extend([PlannedStep::Start, PlannedStep::Bootstrap]);
        }
        steps
    }

    fn all_settings(host: &Host) -> Vec<Setting> {
        let mut settings = size_settings(&Size::default(), &host.size);
        let fixed = host.machine.iter().filter(|(key, _)| host.machine_fixed.contains(*key));
        settings.extend(fixed.map(|(key, value)| Setting {
            key: key.clone(),
            from: None,
            to: Some(value.clone()),
        }));
        settings
    }

    /// There is a machine.
    fn existing(&self, host: &'a Host, machine: &'a Machine) -> Verdict {
        match &machine.state {
            MachineState::Busy(what) => {
                return Verdict::plain(Action::Unknown, Reason::Busy { what: what.clone() });
            }
            MachineState::Broken(why) => {
                return Verdict::plain(Action::Blocked, Reason::Broken { why: why.clone() });
            }
            _ => {}
        }
        if self.policy.power_only {
            return self.power(host, machine);
        }
        let fixed = self.fixed_changes(host, machine);
        if !fixed.is_empty() {
            return self.replace(host, machine, fixed);
        }
        let resize = self.resize_changes(host, machine);
        let mut verdict = self.power(host, machine);
        if verdict.action.is_trouble() || resize.is_empty() {
            return verdict;
        }
        let running = machine.state == MachineState::Running;
        let step = PlannedStep::Resize { to: host.size };
        verdict.settings = resize;
        if running && self.abilities(host).resize == Resize::WhileStopped {
            return match self.guard(machine, Action::ChangeWithRestart) {
                Err(reason) => Verdict::plain(Action::Blocked, reason),
                Ok(passed) => restart(verdict, passed, step),
            };
        }
        verdict.steps.insert(0, step);
        if verdict.action == Action::None {
            verdict.action = Action::Change;
            verdict.reason = Reason::Differs;
            verdict.impact = if running { Impact::Keeps } else { Impact::None };
        }
        verdict
    }

    /// What the file and the machine say about power and set-up.
    fn power(&self, host: &'a Host, machine: &'a Machine) -> Verdict {
        let up = machine.state == MachineState::Running;
        let asked_to_stop = self.policy.stop.contains(&host.name);
        // A person's own command uses what runs; only an apply carries `power = "off"` out.
        let off = host.power == Power::Off && !(self.policy.power_only && self.policy.wake);
        if up && (off || asked_to_stop) {
            let reason = if asked_to_stop { Reason::Asked } else { Reason::PowerOff };
            return match self.guard(machine, Action::Stop) {
                Err(reason) => Verdict::plain(Action::Blocked, reason),
                Ok(passed) => Verdict {
                    impact: passed.impact,
                    notes: passed.notes,
                    steps: vec![PlannedStep::Stop],
                    ..Verdict::plain(Action::Stop, reason)
                },
            };
        }
        if !up && (host.power == Power::Off || asked_to_stop) {
            return Verdict::plain(Action::None, stopped_as_wanted(machine));
        }
        let open = self.observed.history.open_intents.contains_key(&machine.mark.nonce);
        let unfinished = open || machine.state == MachineState::Created;
        // Set-up begins at the start, also where the machine came up: it may have been cut off there.
        let start = (!up || unfinished).then_some(PlannedStep::Start);
        let steps = || start.into_iter().chain([PlannedStep::Bootstrap]).collect();
        let act = |action, reason| Verdict { steps: steps(), ..Verdict::plain(action, reason) };
        match (up, host.power) {
            _ if unfinished => act(Action::Change, Reason::SetUpUnfinished),
            (true, _) => Verdict::plain(Action::None, Reason::Running),
            (false, Power::On) => act(Action::Wake, Reason::PowerOn),
            (false, _) if self.policy.wake => act(Action::Wake, Reason::Asked),
            (false, _) => Verdict::plain(Action::None, stopped_as_wanted(machine)),
        }
    }

    /// Settings that only a new machine can take. Only the host's own block can ask for them.
    fn fixed_changes(&self, host: &'a Host, machine: &'a Machine) -> Vec<Setting> {
        let mut changes = Vec::new();
        if machine.account != host.account {
            changes.push(Setting {
                key: "provider".into(),
                from: Some(machine.account.to_string()),
                to: Some(host.account.to_string()),
            });
        }
        if machine.mark.digest != host.fixed_digest() && changes.is_empty() {
            for key in host.machine_own.intersection(&host.machine_fixed) {
                let (from, to) = (machine.settings.get(key), host.machine.get(key));
                if from != to {
                    let (from, to) = (from.cloned(), to.cloned());
                    changes.push(Setting { key: key.clone(), from, to });
                }
            }
        }
        let size = size_settings(&machine.size, &host.size);
        if host.size_is_own && changes.is_empty() {
            let cannot = |setting: &Setting| self.needs_replace(host, machine, setting);
            changes.extend(size.into_iter().filter(cannot));
        }
        changes
    }

    /// Whether no existing machine can take a size: a kind that never resizes, or a smaller disk.
    fn needs_replace(&self, host: &Host, machine: &Machine, setting: &Setting) -> bool {
        let shrinks = setting.key == "size.disk" && host.size.disk < machine.size.disk;
        self.abilities(host).resize == Resize::Replace || shrinks
    }

    fn resize_changes(&self, host: &'a Host, machine: &'a Machine) -> Vec<Setting> {
        let changes = size_settings(&machine.size, &host.size);
        changes.into_iter().filter(|setting| !self.needs_replace(host, machine, setting)).collect()
    }

    fn replace(&self, host: &'a Host, machine: &'a Machine, settings: Vec<Setting>) -> Verdict {
        let wanted = Action::Replace;
        let passed = match self.protected(machine, wanted) {
            Some(reason) => Err(reason),
            None => self.guard(machine, wanted),
        };
        let result = passed.and_then(|passed| Ok((passed, self.makeable(host)?)));
        let (passed, notes) = match result {
            Ok(passed) => passed,
            Err(reason) => {
                return Verdict { settings, ..Verdict::plain(Action::Blocked, reason) };
            }
        };
        let mut steps = self.making(host);
        let create = steps.iter().position(|step| *step == PlannedStep::Create).unwrap_or(0);
        steps.insert(create, PlannedStep::Destroy);
        Verdict {
            impact: passed.impact,
            notes: passed.notes.into_iter().chain(notes).collect(),
            settings,
            steps,
            ..Verdict::plain(wanted, Reason::Differs)
        }
    }

    fn entry(&self, host: &'a Host, machine: Option<&'a Machine>, verdict: Verdict) -> HostPlan {
        let mut notes = verdict.notes;
        if let Some(machine) = machine {
            if machine.mark.protected != host.protect && verdict.action != Action::Replace {
                notes.push(Note::ProtectedAtBirth { mark: machine.mark.protected });
            }
            let renames = host.machine_own.contains("name") && machine.name != host.machine_name();
            if renames && verdict.action != Action::Replace {
                notes.push(Note::KeepsName { name: machine.name.clone() });
            }
            if machine.mark.host != host.name {
                notes.push(Note::Renamed { was: machine.mark.host.clone() });
            }
        }
        let runs = runs_after(machine, &verdict.steps);
        let abilities = self.abilities(host);
        if let (IdleStop::After(after), IdleStopBy::Keeper, true) =
            (host.idle_stop, abilities.idle_stop, runs)
        {
            notes.push(Note::IdleStopNeedsKeeper { after });
        }
        let makes = verdict.steps.contains(&PlannedStep::Create);
        HostPlan {
            host: host.name.clone(),
            account: host.account.clone(),
            action: verdict.action,
            reason: verdict.reason,
            impact: verdict.impact,
            settings: verdict.settings,
            pending: Vec::new(),
            notes,
            machine: machine.cloned(),
            make: makes.then(|| host.spec(self.fleet)),
            steps: verdict.steps,
            stopped_by: stopped_by(abilities, host.idle_stop, runs),
            facts: self.facts(&host.account, machine),
        }
    }

    /// What an entry about a machine, or about its absence, relies on.
    pub(super) fn facts(
        &self,
        account: &crate::model::AccountName,
        machine: Option<&Machine>,
    ) -> Vec<Fact> {
        let mut facts = Vec::new();
        let mut add = |about: String, value: String| facts.push(Fact { about, value });
        if let Some(listing) = self.listing(account) {
            add(format!("account {account}"), listing.identity.clone());
        }
        let Some(machine) = machine else {
            add("machine".into(), "none".into());
            return facts;
        };
        add("machine".into(), format!("{} at {}", machine.id, machine.account));
        add("state".into(), machine.state.word().into());
        add("size".into(), machine.size.to_string());
        for (key, value) in &machine.settings {
            add(key.clone(), value.clone());
        }
        facts
    }
}

fn restart(mut verdict: Verdict, passed: Passed, resize: PlannedStep) -> Verdict {
    verdict.steps = match verdict.action {
        Action::Stop => vec![PlannedStep::Stop, resize],
        _ => vec![PlannedStep::Stop, resize, PlannedStep::Start, PlannedStep::Bootstrap],
    };
    if verdict.action != Action::Stop {
        verdict.action = Action::ChangeWithRestart;
        verdict.reason = Reason::Differs;
    }
    verdict.impact = passed.impact;
    verdict.notes = passed.notes;
    verdict
}

fn stopped_as_wanted(machine: &Machine) -> Reason {
    match machine.state {
        MachineState::Paused => Reason::PausedAsWanted,
        _ => Reason::StoppedAsWanted,
    }
}

/// The parts of a size that differ; what the file does not say is not compared.
fn size_settings(from: &Size, to: &Size) -> Vec<Setting> {
    fn part<T: PartialEq + ToString>(key: &str, from: Option<T>, to: Option<T>) -> Option<Setting> {
        let differs = to.is_some() && from != to;
        let text = |value: Option<T>| value.map(|value| value.to_string());
        differs.then(|| Setting { key: key.into(), from: text(from), to: text(to) })
    }
    let parts = [
        part("size.cpus", from.cpus, to.cpus),
        part("size.memory", from.memory, to.memory),
        part("size.disk", from.disk, to.disk),
    ];
    parts.into_iter().flatten().collect()
}

/// Whether the machine runs once the steps are done.
fn runs_after(machine: Option<&Machine>, steps: &[PlannedStep]) -> bool {
    let runs_now = machine.is_some_and(|machine| machine.state == MachineState::Running);
    steps.iter().fold(runs_now, |runs, step| match step {
        PlannedStep::Start => true,
        PlannedStep::Stop | PlannedStep::Destroy => false,
        _ => runs,
    })
}

pub(super) fn stopped_by(abilities: &Abilities, idle_stop: IdleStop, runs: bool) -> StoppedBy {
    match (abilities.idle_stop, idle_stop) {
        _ if !runs => StoppedBy::NotRunning,
        _ if abilities.runs_here => StoppedBy::ThisComputer,
        (IdleStopBy::Lease, _) => StoppedBy::Lease,
        (IdleStopBy::GuestTimer, IdleStop::After(_)) => StoppedBy::GuestTimer,
        _ => StoppedBy::Nobody,
    }
}
