//! The JSON schema of `hosts.toml`, for editors. Its types carry the same keys that
//! [`super::check`] reads (a test compares them), and the kinds' own keys come from their
//! [`KindSpec`]s.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::model::{KeySpec, KindSpec, Power, Preset};

/// The hosts of a fleet and the accounts they use.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, title = "hosts.toml")]
#[expect(dead_code, reason = "only its schema is used")]
struct HostsFile {
    /// Id of the fleet, written by `simstim init`; it marks every machine made for this file.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"))]
    fleet: Option<String>,
    /// Values for hosts that name none.
    defaults: Option<Defaults>,
    /// Accounts of providers, by name.
    provider: Option<BTreeMap<String, Value>>,
    /// The hosts.
    host: Option<Vec<HostBlock>>,
}

/// Any key of a host but `name`, `was` and `machine`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct Defaults {
    #[schemars(flatten)]
    shared: Shared,
}

/// One host.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct HostBlock {
    /// What you call it: a-z, 0-9 and `-`, at most 40 characters.
    #[schemars(regex(pattern = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"), length(max = 40))]
    name: String,
    /// The name it had before; it keeps that machine.
    #[schemars(regex(pattern = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"), length(max = 40))]
    was: Option<String>,
    /// Settings of its provider alone.
    machine: Option<Map<String, Value>>,
    #[schemars(flatten)]
    shared: Shared,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Shared {
    /// The provider or account that makes its machine.
    #[schemars(regex(pattern = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"), length(max = 40))]
    provider: Option<String>,
    /// How large its machine is.
    size: Option<SizeValue>,
    /// Stops it after nothing worked and nobody was present for so long, such as `30m`; or `never`.
    #[schemars(regex(pattern = SPAN_OR_NEVER))]
    idle_stop: Option<String>,
    /// The lease while a session works, such as `60m`; only for providers with leases.
    #[schemars(regex(pattern = SPAN))]
    busy_lease: Option<String>,
    /// `on-demand`: woken by a person. `on`: always running. `off`: always stopped.
    power: Option<Power>,
    /// Nothing destroys or replaces it.
    protect: Option<bool>,
    /// Coding agents to have on it.
    agents: Option<Vec<String>>,
    /// Plain variables for its sessions; never a credential.
    env: Option<BTreeMap<String, String>>,
}

const SPAN: &str = r"^\s*([0-9]+\s*[A-Za-z]+\s*)+$";
const SPAN_OR_NEVER: &str = r"^(never|\s*([0-9]+\s*[A-Za-z]+\s*)+)$";
const SIZE: &str = r"^\s*[0-9]+\s*([KMGT]i?B)\s*$";

/// A size by name, or its parts.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum SizeValue {
    Preset(Preset),
    Parts(SizeParts),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct SizeParts {
    /// Processors.
    #[schemars(range(min = 1, max = 1024))]
    cpus: Option<u32>,
    /// Memory, such as `4GiB`.
    #[schemars(regex(pattern = SIZE))]
    memory: Option<String>,
    /// Disk, such as `40GiB`.
    #[schemars(regex(pattern = SIZE))]
    disk: Option<String>,
}

/// The schema for the kinds of `catalog`.
pub fn json_schema(catalog: &[KindSpec]) -> Value {
    let mut schema = schemars::schema_for!(HostsFile).to_value();
    let accounts: Map<String, Value> =
        catalog.iter().map(|spec| (spec.kind.into(), account(spec, false))).collect();
    let other: Vec<Value> = catalog.iter().map(|spec| account(spec, true)).collect();
    schema["properties"]["provider"] = json!({
        "description": "Accounts of providers, by name.",
        "type": "object",
        "properties": accounts,
        "additionalProperties": { "anyOf": other },
    });
    let rules: Vec<Value> = catalog.iter().map(machine_rule).collect();
    schema["$defs"]["HostBlock"]["allOf"] = rules.into();
    schema
}

/// What `[provider.NAME]` of a kind may hold. `named`: NAME is not the kind, so `kind` must say it.
fn account(spec: &KindSpec, named: bool) -> Value {
    let mut schema = keys(spec.account_keys, spec.doc);
    schema["properties"]["kind"] = json!({ "const": spec.kind });
    if named {
        schema["required"] = json!(["kind"]);
    }
    schema
}

/// A host that names a kind as its provider has only that kind's keys in `[host.machine]`.
fn machine_rule(spec: &KindSpec) -> Value {
    json!({
        "if": { "properties": { "provider": { "const": spec.kind } }, "required": ["provider"] },
        "then": { "properties": { "machine": keys(spec.machine_keys, spec.doc) } },
    })
}

fn keys(specs: &[KeySpec], doc: &str) -> Value {
    let properties: Map<String, Value> =
        specs.iter().map(|spec| (spec.name.into(), key(spec))).collect();
    json!({
        "description": doc,
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

fn key(spec: &KeySpec) -> Value {
    if spec.is_command {
        let word = json!({ "type": "string", "minLength": 1 });
        let list = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
        return json!({ "description": spec.doc, "anyOf": [word, list] });
    }
    let mut schema = json!({ "description": spec.doc, "type": "string", "minLength": 1 });
    if let Some(default) = spec.default {
        schema["default"] = default.into();
    }
    if !spec.values.is_empty() {
        schema["enum"] = spec.values.into();
    }
    schema
}
