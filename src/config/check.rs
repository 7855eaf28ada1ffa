//! From a text to a [`Config`], or to every problem at once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml_edit::{Document, Item, TableLike};

use super::model::{Account, Config, DEFAULT_BUSY_LEASE, Host};
use super::problem::{Problems, suggest};
use super::reader::{At, Reader};
use super::trust::TrustNeed;
use crate::model::{
    AccountName, Bytes, FleetId, HostName, IdleStop, IdleStopBy, KeySpec, KindSpec, Power, Preset,
    Size, Span,
};

/// Below it nothing starts; Docker refuses less as well (its API's rule since 20.10).
const LEAST_MEMORY: Bytes = Bytes(6 << 20);

/// Words in a variable's name that say "credential".
const SECRET_WORDS: [&str; 6] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "CREDENTIAL"];

/// A command as written: one text is its program alone.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected a program, or a list of a program and its arguments")]
enum CommandText {
    Program(String),
    Words(Vec<String>),
}

/// A command as a JSON list of words.
#[derive(serde::Deserialize)]
#[serde(try_from = "CommandText")]
struct CommandWish(String);

impl TryFrom<CommandText> for CommandWish {
    type Error = &'static str;
    fn try_from(text: CommandText) -> Result<Self, &'static str> {
        let words = match text {
            CommandText::Program(program) => vec![program],
            CommandText::Words(words) => words,
        };
        match words.first() {
            Some(program) if !program.is_empty() => {
                Ok(Self(serde_json::to_string(&words).expect("words print")))
            }
            _ => Err("a command begins with a program"),
        }
    }
}

/// The keys that `[defaults]` and `[[host]]` share, as written.
#[derive(Default)]
struct Wishes {
    provider: Option<At<AccountName>>,
    size: Option<At<SizeWish>>,
    idle_stop: Option<At<IdleStop>>,
    busy_lease: Option<At<Span>>,
    power: Option<At<Power>>,
    protect: Option<At<bool>>,
    agents: Option<At<Vec<String>>>,
    env: BTreeMap<String, String>,
}

/// A size as written.
struct SizeWish {
    size: Size,
    /// The places of `cpus`, `memory` and `disk`; empty for a preset.
    spans: Vec<(&'static str, Range<usize>)>,
}

/// Reads and checks a text. Warnings come inside the [`Config`].
///
/// # Errors
/// All problems of the text, in its order.
pub fn read(text: &str, catalog: &[KindSpec]) -> Result<Config, Problems> {
    let document = Document::parse(text).map_err(|error| {
        let mut problems = Problems::default();
        let span = error.span().unwrap_or(0..text.len().min(1));
        problems.error(span, error.message().lines().next().unwrap_or("not TOML").trim());
        problems
    })?;
    let check = Check { catalog, problems: RefCell::default() };
    let mut config = check.file(document.as_table());
    let mut problems = check.problems.into_inner();
    problems.sort();
    if problems.has_errors() {
        return Err(problems);
    }
    config.warnings = problems.0;
    Ok(config)
}

struct Check<'c> {
    catalog: &'c [KindSpec],
    problems: RefCell<Problems>,
}

impl<'c> Check<'c> {
    fn error(&self, span: Range<usize>, message: impl Into<String>) {
        self.problems.borrow_mut().error(span, message);
    }

    fn error_help(&self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.problems.borrow_mut().error_help(span, message, help);
    }

    fn file(&self, root: &dyn TableLike) -> Config {
        let mut reader = Reader::new(root, "a hosts.toml", &self.problems);
        let fleet = reader.take::<FleetId>("fleet").map(|at| at.value);
        let defaults = reader.table("defaults").map(|at| self.defaults(at.value));
        let mut needs_trust = Vec::new();
        let accounts = reader.table("provider");
        let mut accounts =
            accounts.map(|at| self.accounts(at.value, &mut needs_trust)).unwrap_or_default();
        let hosts = reader.item("host").map(|at| self.hosts(&at)).unwrap_or_default();
        reader.finish(|key| {
            (key == "hosts").then(|| "did you mean `[[host]]`, once for each host?".into())
        });
        let hosts = self.resolve(hosts, &defaults.unwrap_or_default(), &mut accounts);
        Config { fleet, accounts, hosts, needs_trust, warnings: Vec::new() }
    }

    fn defaults(&self, table: &dyn TableLike) -> Wishes {
        let mut reader = Reader::new(table, "[defaults]", &self.problems);
        let wishes = self.wishes(&mut reader);
        reader.finish(|key| match key {
            "name" | "machine" | "was" => {
                Some(format!("`{key}` belongs into the `[[host]]` that it is about"))
            }
            _ => None,
        });
        wishes
    }

    fn wishes(&self, reader: &mut Reader<'_>) -> Wishes {
        Wishes {
            provider: reader.take("provider"),
            size: reader.item("size").and_then(|at| self.size(reader, at)),
            idle_stop: reader.take("idle_stop"),
            busy_lease: reader.take("busy_lease"),
            power: reader.word("power", &Power::WORDS),
            protect: reader.take("protect"),
            agents: reader.take("agents"),
            env: reader.table("env").map(|at| self.env(at.value)).unwrap_or_default(),
        }
    }

    fn size(&self, outer: &Reader<'_>, at: At<&Item>) -> Option<At<SizeWish>> {
        let span = at.span.clone();
        if let Some(table) = at.value.as_table_like() {
            let mut reader = Reader::new(table, "size", &self.problems);
            let cpus = reader.take::<u32>("cpus");
            let memory = reader.take::<Bytes>("memory");
            let disk = reader.take::<Bytes>("disk");
            reader.finish(|_| None);
            if let Some(At { span, .. }) = memory.as_ref().filter(|at| at.value < LEAST_MEMORY) {
                self.error(span.clone(), format!("`memory` is at least {LEAST_MEMORY}"));
            }
            if let Some(At { span, value: 0 | 1025.. }) = &cpus {
                self.error(span.clone(), "`cpus` is a number from 1 to 1024");
            }
            let place = |key, at: Option<Range<usize>>| at.map(|span| (key, span));
            let spans = [
                place("cpus", cpus.as_ref().map(|at| at.span.clone())),
                place("memory", memory.as_ref().map(|at| at.span.clone())),
                place("disk", disk.as_ref().map(|at| at.span.clone())),
            ];
            let size = Size {
                cpus: cpus.map(|at| at.value),
                memory: memory.map(|at| at.value),
                disk: disk.map(|at| at.value),
            };
            let spans = spans.into_iter().flatten().collect();
            return Some(At { value: SizeWish { size, spans }, span });
        }
        let word: At<String> = outer.parse("size", at)?;
        if let Some((_, preset)) = Preset::WORDS.into_iter().find(|(name, _)| *name == word.value) {
            Some(At { value: SizeWish { size: preset.size(), spans: Vec::new() }, span })
        } else {
            let names = Preset::WORDS.map(|(name, _)| name);
            let help = format!(
                "{}; or a table: {{ cpus = 2, memory = \"4GiB\" }}",
                suggest(&word.value, &names)
            );
            self.error_help(span, format!("`{}` is no size", word.value), help);
            None
        }
    }

    fn env(&self, table: &dyn TableLike) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for (name, item) in table.iter() {
            let key_span = table.get_key_value(name).and_then(|(key, _)| key.span());
            let span = item.span().or_else(|| key_span.clone()).unwrap_or_default();
            let key_span = key_span.unwrap_or_else(|| span.clone());
            if name.is_empty() || name.contains(['=', '\0']) {
                self.error(key_span, format!("`{name}` is no name of a variable"));
                continue;
            }
            let upper = name.to_ascii_uppercase();
            if SECRET_WORDS.iter().any(|word| upper.contains(word)) {
                self.problems.borrow_mut().warning(
                    key_span,
                    format!("`{name}` looks like a credential; this file is no place for one"),
                    "log in on the host instead",
                );
            }
            match item.as_str() {
                Some(value) if value.contains('\0') => {
                    self.error(span, "a variable cannot hold a zero byte");
                }
                Some(value) => {
                    env.insert(name.into(), value.into());
                }
                None => self.error(span, format!("the value of `{name}` is a text")),
            }
        }
        env
    }

    fn accounts(
        &self,
        table: &dyn TableLike,
        needs_trust: &mut Vec<TrustNeed>,
    ) -> BTreeMap<AccountName, Account> {
        let mut accounts = BTreeMap::new();
        for (name, item) in table.iter() {
            let span = table.get_key_value(name).and_then(|(key, _)| key.span());
            let span = span.or_else(|| item.span()).unwrap_or_default();
            let account_name = match AccountName::new(name) {
                Ok(account_name) => account_name,
                Err(error) => {
                    self.error(span, format!("`{name}` is no name of an account: {error}"));
                    continue;
                }
            };
            let Some(settings) = item.as_table_like() else {
                self.error(span, format!("`provider.{name}` is a table: [provider.{name}]"));
                continue;
            };
            if let Some(account) = self.account(name, span, settings, needs_trust) {
                accounts.insert(account_name, account);
            }
        }
        accounts
    }

    fn account(
        &self,
        name: &str,
        span: Range<usize>,
        table: &dyn TableLike,
        needs_trust: &mut Vec<TrustNeed>,
    ) -> Option<Account> {
        let mut reader = Reader::new(table, "this [provider]", &self.problems);
        let kind = reader.take::<String>("kind");
        let (word, place) = kind.map_or((name.to_owned(), span), |at| (at.value, at.span));
        let Some(spec) = self.kind(&word) else {
            let help = format!("add `kind`; {}", suggest(&word, &self.kinds()));
            self.error_help(place, format!("`{word}` is no kind of provider"), help);
            return None;
        };
        let settings = self.settings(&mut reader, spec.account_keys);
        for (key, at) in &settings {
            if spec.account_keys.iter().any(|spec| spec.name == key && spec.needs_trust) {
                let value = at.value.clone();
                needs_trust.push(TrustNeed { key: format!("provider.{name}.{key}"), value });
            }
        }
        reader.finish(|_| None);
        let settings = with_defaults(settings, spec.account_keys);
        Some(Account { kind: word, settings, abilities: spec.abilities.clone() })
    }

    /// Takes the keys of `specs` that are written.
    fn settings(
        &self,
        reader: &mut Reader<'_>,
        specs: &'static [KeySpec],
    ) -> BTreeMap<String, At<String>> {
        let mut settings = BTreeMap::new();
        for spec in specs {
            let taken = if spec.is_command {
                reader
                    .take::<CommandWish>(spec.name)
                    .map(|at| At { value: at.value.0, span: at.span })
            } else {
                reader.take::<String>(spec.name)
            };
            let Some(at) = taken else { continue };
            if at.value.starts_with('-') {
                // It would be read as an option where it goes.
                self.error(at.span, format!("`{}` does not begin with `-`", spec.name));
            } else if at.value.is_empty() || at.value.contains(char::is_control) {
                self.error(
                    at.span,
                    format!("`{}` is a text without control characters", spec.name),
                );
            } else if !spec.values.is_empty() && !spec.values.contains(&at.value.as_str()) {
                let message = format!("`{}` is no value of `{}`", at.value, spec.name);
                self.error_help(at.span, message, suggest(&at.value, spec.values));
            } else if spec.is_name && !is_machine_name(&at.value) {
                let message = format!("`{}` is no name of a machine", at.value);
                let help = "A-Z, a-z, 0-9, `_`, `.` and `-`, two to 63, beginning with none of the last three";
                self.error_help(at.span, message, help);
            } else {
                settings.insert(spec.name.into(), at);
            }
        }
        settings
    }

    fn kind(&self, word: &str) -> Option<&'c KindSpec> {
        self.catalog.iter().find(|spec| spec.kind == word)
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.catalog.iter().map(|spec| spec.kind).collect()
    }

    fn hosts<'d>(&self, at: &At<&'d Item>) -> Vec<(&'d dyn TableLike, Range<usize>)> {
        if let Item::ArrayOfTables(tables) = at.value {
            tables
                .iter()
                .map(|table| (table as &dyn TableLike, table.span().unwrap_or_default()))
                .collect()
        } else {
            self.error_help(
                at.span.clone(),
                "hosts are written as `[[host]]`, once for each",
                "write `[[host]]` with two brackets",
            );
            Vec::new()
        }
    }

    fn resolve(
        &self,
        blocks: Vec<(&dyn TableLike, Range<usize>)>,
        defaults: &Wishes,
        accounts: &mut BTreeMap<AccountName, Account>,
    ) -> Vec<Host> {
        let mut hosts: Vec<Host> = Vec::new();
        let mut taken: BTreeSet<HostName> = BTreeSet::new();
        for (table, span) in blocks {
            let mut reader = Reader::new(table, "[[host]]", &self.problems);
            let name = reader.take::<HostName>("name");
            let was = reader.take::<HostName>("was");
            let own = self.wishes(&mut reader);
            let machine = reader.table("machine");
            reader.finish(|key| {
                let of_machine = |spec: &KindSpec| spec.machine_keys.iter().any(|k| k.name == key);
                let found = self.catalog.iter().any(of_machine);
                found.then(|| format!("`{key}` belongs into `[host.machine]`, below `[[host]]`"))
            });
            if table.get("name").is_none() {
                self.error_help(span.clone(), "a host needs a name", "add `name = \"dev\"`");
            }
            if own.provider.is_none() && table.contains_key("provider") {
                // What is wrong with it was said.
                continue;
            }
            let host = self.host(span.clone(), defaults, &own, machine, accounts);
            let (Some(name), Some(mut host)) = (name, host) else { continue };
            for at in std::iter::once(&name).chain(&was) {
                if !taken.insert(at.value.clone()) {
                    self.error(at.span.clone(), format!("`{}` names two hosts", at.value));
                }
            }
            host.name = name.value;
            host.was = was.map(|at| at.value);
            let machine = host.machine_name();
            let twin = hosts.iter().find(|other| {
                other.name != host.name
                    && other.account == host.account
                    && other.machine_name() == machine
            });
            if let Some(twin) = twin {
                let message =
                    format!("`{}` and `{}` want the same machine, {machine}", twin.name, host.name);
                self.error(span, message);
            }
            hosts.push(host);
        }
        hosts
    }

    fn host(
        &self,
        span: Range<usize>,
        defaults: &Wishes,
        own: &Wishes,
        machine: Option<At<&dyn TableLike>>,
        accounts: &mut BTreeMap<AccountName, Account>,
    ) -> Option<Host> {
        let Some(provider) = own.provider.as_ref().or(defaults.provider.as_ref()) else {
            let help = format!("add `provider = \"…\"`; there is: {}", self.kinds().join(", "));
            self.error_help(span, "a host needs a provider", help);
            return None;
        };
        let account = provider.value.clone();
        let spec = self.account_kind(provider, accounts)?;
        self.unsupported(spec, own);
        self.power_or_idle(own);
        let written = machine.map(|at| self.machine(spec, at.value)).unwrap_or_default();
        let machine_own = written.keys().cloned().collect();
        let fixed = spec.machine_keys.iter().filter(|key| key.replaces);
        let power = own.power.as_ref().or(defaults.power.as_ref()).map(|at| at.value);
        let power = power.unwrap_or_default();
        let protect = own.protect.as_ref().or(defaults.protect.as_ref());
        let agents = own.agents.as_ref().or(defaults.agents.as_ref());
        if let Some(At { span, .. }) = agents.filter(|at| !at.value.is_empty()) {
            self.problems.borrow_mut().warning(
                span.clone(),
                "this version does not install agents yet",
                "install them by hand: simstim exec HOST -- …",
            );
        }
        let mut env = defaults.env.clone();
        env.extend(own.env.clone());
        Some(Host {
            name: HostName::new("unnamed").expect("a valid name"),
            account,
            kind: spec.kind.into(),
            size: wanted_size(spec, own, defaults),
            size_is_own: own.size.is_some(),
            idle_stop: wanted_idle_stop(spec, power, own, defaults),
            busy_lease: own
                .busy_lease
                .as_ref()
                .or(defaults.busy_lease.as_ref())
                .map_or(DEFAULT_BUSY_LEASE, |at| at.value),
            power,
            protect: protect.is_some_and(|at| at.value),
            agents: agents.map(|at| at.value.clone()).unwrap_or_default(),
            env,
            was: None,
            machine: with_defaults(written, spec.machine_keys),
            machine_own,
            machine_fixed: fixed.map(|key| key.name.into()).collect(),
        })
    }

    /// The kind of an account; an undeclared account is its kind.
    fn account_kind(
        &self,
        provider: &At<AccountName>,
        accounts: &mut BTreeMap<AccountName, Account>,
    ) -> Option<&'c KindSpec> {
        let name = provider.value.as_str();
        let declared = accounts.get(&provider.value).map(|account| account.kind.clone());
        if let Some(spec) = self.kind(declared.as_deref().unwrap_or(name)) {
            accounts.entry(provider.value.clone()).or_insert_with(|| Account {
                kind: spec.kind.into(),
                settings: with_defaults(BTreeMap::new(), spec.account_keys),
                abilities: spec.abilities.clone(),
            });
            return Some(spec);
        }
        let mut words = self.kinds();
        words.extend(accounts.keys().map(AccountName::as_str));
        words.sort_unstable();
        words.dedup();
        let message = format!("`{name}` is no provider, nor an account of this file");
        self.error_help(provider.span.clone(), message, suggest(name, &words));
        None
    }

    /// Only a key in the host's own block can be "not supported here".
    fn unsupported(&self, spec: &KindSpec, own: &Wishes) {
        let abilities = &spec.abilities;
        let refuse = |span: &Range<usize>, key: &str, why: &str| {
            self.error(span.clone(), format!("`{}` hosts have no `{key}`: {why}", spec.kind));
        };
        if let Some(size) = &own.size {
            let able = |key: &str| match key {
                "cpus" => abilities.cpus,
                "memory" => abilities.memory,
                _ => abilities.disk,
            };
            if abilities.cpus || abilities.memory || abilities.disk {
                for (key, span) in size.value.spans.iter().filter(|(key, _)| !able(key)) {
                    refuse(span, key, "its provider sets no such bound");
                }
            } else {
                refuse(&size.span, "size", "they use what this computer has");
            }
        }
        let idles = abilities.idle_stop != IdleStopBy::Nobody;
        if let Some(At { value: IdleStop::After(_), span }) = &own.idle_stop
            && !idles
        {
            refuse(span, "idle_stop", "a running one costs nothing");
        }
        if let Some(at) = &own.busy_lease
            && abilities.idle_stop != IdleStopBy::Lease
        {
            refuse(&at.span, "busy_lease", "their provider knows no leases");
        }
    }

    fn power_or_idle(&self, own: &Wishes) {
        if let (Some(At { value: Power::On, .. }), Some(idle)) = (&own.power, &own.idle_stop) {
            self.error_help(
                idle.span.clone(),
                "`power = \"on\"` and `idle_stop` contradict each other",
                "remove one of them: \"on\" means that it never stops when idle",
            );
        }
    }

    fn machine(&self, spec: &KindSpec, table: &dyn TableLike) -> BTreeMap<String, At<String>> {
        let mut reader = Reader::new(table, "this [host.machine]", &self.problems);
        let settings = self.settings(&mut reader, spec.machine_keys);
        reader.finish(|key| {
            let other = self.catalog.iter().find(|other| {
                other.kind != spec.kind && other.machine_keys.iter().any(|k| k.name == key)
            })?;
            Some(format!("`{key}` is a key of `{}` hosts; this one is `{}`", other.kind, spec.kind))
        });
        settings
    }
}

fn is_machine_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    (2..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(plain)
}

fn wanted_size(spec: &KindSpec, own: &Wishes, defaults: &Wishes) -> Size {
    let written =
        |wishes: &Wishes| wishes.size.as_ref().map(|at| at.value.size).unwrap_or_default();
    let size = written(own).or(written(defaults)).or(Preset::Medium.size());
    let able = &spec.abilities;
    Size {
        cpus: size.cpus.filter(|_| able.cpus),
        memory: size.memory.filter(|_| able.memory),
        disk: size.disk.filter(|_| able.disk),
    }
}

fn wanted_idle_stop(spec: &KindSpec, power: Power, own: &Wishes, defaults: &Wishes) -> IdleStop {
    if power == Power::On || spec.abilities.idle_stop == IdleStopBy::Nobody {
        return IdleStop::Never;
    }
    let written = own.idle_stop.as_ref().or(defaults.idle_stop.as_ref());
    written.map_or(spec.abilities.default_idle_stop, |at| at.value)
}

fn with_defaults(
    written: BTreeMap<String, At<String>>,
    specs: &'static [KeySpec],
) -> BTreeMap<String, String> {
    let defaults =
        specs.iter().filter_map(|spec| Some((spec.name.to_owned(), spec.default?.into())));
    defaults.chain(written.into_iter().map(|(key, at)| (key, at.value))).collect()
}
