//! A file uses only floors below its own, or its own folder; so there is no cycle.

use std::path::Path;

use regex::Regex;

/// Modules from the ground up. `cli` is the top.
const FLOORS: [&[&str]; 12] = [
    &["model", "files", "network", "process", "stop"],
    &["config", "history", "deeds"],
    &["plan"],
    &["transport"],
    &["provider"],
    &["helper_client"],
    &["memory"],
    &["observe"],
    &["apply"],
    &["fleet", "testing"],
    &["keeper"],
    &["cli"],
];

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|modules| modules.contains(&module))
}

/// The module that a file below `src` belongs to.
fn module_of(path: &str) -> &str {
    if path == "provider/memory.rs" {
        return "memory";
    }
    path.split(['/', '.']).next().unwrap_or_default()
}

/// What is wrong with the imports of one file.
fn upward(path: &str, text: &str) -> Vec<String> {
    let module = module_of(path);
    let own = floor(module).unwrap_or_else(|| panic!("{path} is on no floor"));
    let import = Regex::new(r"\bcrate::(provider::memory|[a-z_]+)").unwrap();
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let code: String = text.lines().filter(code).flat_map(|line| [line, "\n"]).collect();
    let used = import.captures_iter(&code).map(|found| found[1].to_owned());
    used.filter_map(|used| {
        let used = if used == "provider::memory" { "memory".into() } else { used };
        let below = floor(&used).is_some_and(|floor| floor < own);
        (used != module && !below).then(|| format!("{path} ({module}) uses {used}"))
    })
    .collect()
}

fn files(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn no_file_uses_a_floor_above_it() {
    let mut found = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() > 40, "the sources were read");
    let inner = found.iter().filter(|(name, _)| !["lib.rs", "main.rs"].contains(&name.as_str()));
    let wrong: Vec<String> = inner.flat_map(|(name, text)| upward(name, text)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_upward_import_would_be_seen() {
    assert_eq!(upward("plan/mod.rs", "use crate::apply::Event;").len(), 1);
    assert_eq!(upward("model/name.rs", "crate::config::read()").len(), 1);
    assert_eq!(upward("config/mod.rs", "use crate::history::History;").len(), 1, "a neighbour");
    assert!(upward("plan/mod.rs", "use crate::config::Config; use crate::plan::x;").is_empty());
}

#[test]
fn the_helper_knows_only_the_contracts() {
    let manifest = include_str!("../../helper/Cargo.toml");
    let (_, dependencies) = manifest.split_once("[dependencies]").unwrap();
    let names: Vec<&str> =
        dependencies.lines().filter_map(|line| line.split([' ', '.']).next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    for name in &names {
        assert!(
            ["rustix", "schema", "sha2", "vt100"].contains(name),
            "{name} is new: is it free of C?"
        );
    }
}

#[test]
fn one_file_of_the_helper_may_be_unsafe() {
    let sources = std::fs::read_dir("helper/src").unwrap();
    let files = sources.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let allowing =
        files.filter(|file| std::fs::read_to_string(file).unwrap().contains("(unsafe_code"));
    let names: Vec<_> = allowing.map(|file| file.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["entry.rs"]);
}
