//! The parsers of bytes that simstim did not write, each as a function that must return whatever the
//! bytes are. Fuzz targets call them with anything; a test calls them with the corpora.

use std::path::Path;

use schema::frame::{Decoder, Encoder, FrameError};
use schema::message::Body;

use crate::config::{self, Config, Edit, NewHost};
use crate::model::{AccountName, Machine, MachineState, Size};
use crate::plan::{self, SavedPlan};
use crate::provider::{DockerKind, Kinds, LocalKind, ScriptKind, outside as provider};

/// A parser of outside bytes, with what must hold of what it reads. Panics where that does not hold.
pub type Parser = fn(&[u8]);

/// Every parser, by the name of its fuzz target and corpus.
pub const PARSERS: [(&str, Parser); 6] = [
    ("hosts_file", hosts_file),
    ("frames", frames),
    ("docker_list", docker_list),
    ("docker_inspect", docker_inspect),
    ("saved_plan", saved_plan),
    ("script", script),
];

/// `hosts.toml`: every problem points into the text, and a host added and removed changes nothing.
pub fn hosts_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let catalog = Kinds::default().with(DockerKind).with(LocalKind).with(ScriptKind).catalog();
    match config::read(text, &catalog) {
        Ok(config) => edits(text, &config, |text| config::read(text, &catalog).ok()),
        Err(problems) => {
            assert!(problems.has_errors());
            for problem in problems.0 {
                assert!(text.get(problem.span.clone()).is_some(), "{problem:?} points outside");
            }
        }
    }
}

fn edits(text: &str, config: &Config, read: impl Fn(&str) -> Option<Config>) {
    let host = NewHost {
        name: "added-by-test".parse().expect("a valid name"),
        provider: AccountName::new("docker").expect("a valid name"),
        size: Size::default(),
        machine: Vec::new(),
    };
    let mut edit = Edit::new(Some(text));
    if config.host(&host.name).is_some() || edit.add_host(&host).is_err() {
        return;
    }
    let added = read(edit.text()).expect("a host more is no problem");
    assert_eq!(added.hosts.len(), config.hosts.len() + 1);
    edit.remove_host(&host.name).expect("it was just added");
    let removed = read(edit.text()).expect("the host less is no problem");
    assert_eq!(removed.hosts.len(), config.hosts.len());
    assert_eq!(removed.fleet, config.fleet);
    // Blank lines part blocks, and go with the one that they part.
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    assert!(lines.all(|line| edit.text().contains(line)), "an edit lost a line");
}

/// Frames: however the bytes are cut, the same messages come, and they encode again.
pub fn frames(bytes: &[u8]) {
    let whole = decode(bytes, bytes.len().max(1));
    let cut = 1 + bytes.first().map_or(0, |byte| usize::from(*byte));
    assert_eq!(whole, decode(bytes, cut), "cut into pieces of {cut}");
    let mut out = Vec::new();
    let mut encoder = Encoder::default();
    for body in &whole.0 {
        encoder.encode(body.clone(), &mut out).expect("what was read fits a frame");
    }
    assert_eq!(decode(&out, 7).0, whole.0);
}

fn decode(bytes: &[u8], cut: usize) -> (Vec<Body>, Option<FrameError>) {
    let (mut decoder, mut seen) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(cut) {
        decoder.push(piece);
        loop {
            match decoder.next_message() {
                Ok(Some(body)) => seen.push(body),
                Ok(None) => break,
                Err(error) => return (seen, Some(error)),
            }
        }
    }
    (seen, None)
}

/// Docker's and Podman's lists.
pub fn docker_list(bytes: &[u8]) {
    for id in provider::docker_list(bytes) {
        assert!(id.len() == 64, "{id} is no id");
    }
}

/// Docker's and Podman's descriptions of containers.
pub fn docker_inspect(bytes: &[u8]) {
    provider::docker_inspect(bytes).iter().for_each(presentable);
}

/// What a provider's program answers.
pub fn script(bytes: &[u8]) {
    provider::script(bytes).iter().for_each(presentable);
}

/// A stranger's words about a machine reach a terminal: short, and without control characters.
fn presentable(machine: &Machine) {
    let settings = machine.settings.iter().flat_map(|(key, value)| [key, value]);
    let why = match &machine.state {
        MachineState::Busy(why) | MachineState::Broken(why) => why.as_str(),
        _ => "",
    };
    let texts = settings.chain([&machine.name]).map(String::as_str);
    for text in texts.chain([machine.id.as_str(), why]) {
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(text.len() <= 10_000, "{} bytes", text.len());
    }
}

/// A saved plan: what reads is written and read again alike, and its steps have an order.
pub fn saved_plan(bytes: &[u8]) {
    let path = Path::new("saved.plan");
    let Ok(saved) = SavedPlan::parse(bytes, path) else { return };
    let again = serde_json::to_vec(&saved).expect("a plan is plain data");
    assert_eq!(SavedPlan::parse(&again, path).ok().as_ref(), Some(&saved));
    let graph = plan::graph(&saved.plan);
    assert_eq!(graph.order().len(), graph.len());
    let _ = saved.still_holds(&saved.config_digest, &saved.plan);
}
