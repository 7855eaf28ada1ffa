//! The examples load, and the schema that editors use says the same as the reader.

use std::path::Path;

use serde_json::Value;
use simstim::config::{self, json_schema};
use simstim::provider::Kinds;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn to_json(text: &str) -> Option<Value> {
    toml_edit::de::from_str(text).ok()
}

/// An independent validator's word on a document.
fn valid(document: &Value) -> bool {
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    let schema = json_schema(&Kinds::default().catalog());
    compiler.add_resource("hosts.schema.json", schema).unwrap();
    let index = compiler.compile("hosts.schema.json", &mut schemas).unwrap();
    schemas.validate(document, index).is_ok()
}

#[test]
fn the_schema_in_the_repository_is_fresh() {
    let path = root().join("schema/hosts.schema.json");
    let fresh = serde_json::to_string_pretty(&json_schema(&Kinds::default().catalog())).unwrap();
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == fresh + "\n", "run: simstim schema > schema/hosts.schema.json");
}

#[test]
fn every_example_loads_carries_a_fleet_and_fits_the_schema() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("examples")).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let file = config::load(&path, &Kinds::default().catalog()).unwrap();
        assert!(file.config.fleet.is_some(), "{}", path.display());
        assert!(file.config.warnings.is_empty(), "{}", path.display());
        assert!(valid(&to_json(&file.text).unwrap()), "{}", path.display());
        count += 1;
    }
    assert!(count >= 3);
}

/// Texts that both must refuse; the second list only the reader can.
const BAD: [&str; 14] = [
    "colour = 1",
    "fleet = 1",
    "[[host]]\nprovider = \"local\"",
    "[[host]]\nname = \"A\"\nprovider = \"local\"",
    "[[host]]\nname = \"a_b\"\nprovider = \"local\"",
    "[[host]]\nname = \"a\"\nprovider = \"docker\"\nsize = 4",
    "[[host]]\nname = \"a\"\nprovider = \"docker\"\nsize = \"huge\"",
    "[[host]]\nname = \"a\"\nprovider = \"docker\"\nsize = { memory = \"4\" }",
    "[[host]]\nname = \"a\"\nprovider = \"docker\"\nsize = { memory = \"4gb\" }",
    "[[host]]\nname = \"a\"\nprovider = \"docker\"\nidle_stop = \"30\"",
    "[[host]]\nname = \"a\"\nprovider = \"docker\"\npower = \"always\"",
    "[[host]]\nname = \"a\"\nprovider = \"docker\"\n[host.machine]\nimgae = \"x\"",
    "[[host]]\nname = \"a\"\nprovider = \"local\"\n[host.machine]\nimage = \"x\"",
    "[provider.docker]\ncli = \"nerdctl\"",
];

#[test]
fn what_the_schema_refuses_the_reader_refuses_too() {
    for text in BAD {
        assert!(
            config::read(text, &Kinds::default().catalog()).is_err(),
            "the reader takes {text}"
        );
        assert!(!valid(&to_json(text).unwrap()), "the schema takes {text}");
    }
}

#[test]
fn the_schema_and_the_reader_know_the_same_keys() {
    let schema = json_schema(&Kinds::default().catalog());
    let keys = |definition: &Value| -> Vec<String> {
        definition["properties"].as_object().unwrap().keys().cloned().collect()
    };
    // A key that the reader knows gives any message but "is no key of".
    let knows = |text: &str| match config::read(text, &Kinds::default().catalog()) {
        Ok(_) => true,
        Err(problems) => problems.0.iter().all(|problem| !problem.message.contains("is no key of")),
    };
    for key in keys(&schema) {
        let text = if key == "host" { "[[host]]".into() } else { format!("{key} = 1") };
        assert!(knows(&text), "{key}");
    }
    for key in keys(&schema["$defs"]["HostBlock"]) {
        assert!(knows(&format!("[[host]]\n{key} = 1")), "host.{key}");
    }
    for key in keys(&schema["$defs"]["Defaults"]) {
        assert!(knows(&format!("[defaults]\n{key} = 1")), "defaults.{key}");
    }
    assert!(!knows("[[host]]\ncolour = 1"));
}
