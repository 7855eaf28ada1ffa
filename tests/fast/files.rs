//! Files as people write them: what is wrong is shown at its place, and nothing was made.

use insta::assert_snapshot;

use crate::support::{Sandbox, tree};

/// What a plan of a text says.
fn plan_of(text: impl AsRef<[u8]>) -> String {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", text);
    let run = sandbox.run(&["plan"]);
    assert!(tree(&sandbox.path("home")).is_empty(), "nothing was made");
    format!("{run}")
}

const HEAD: &str = "fleet = \"f\"\n\n[[host]]\nname = \"dev\"\nprovider = \"docker\"\n";

#[test]
fn two_errors_are_shown_at_once() {
    let text =
        "fleet = \"f\"\n[[host]]\nname = \"dev\"\nprovider = \"dokcer\"\nidle-stop = \"30m\"\n";
    assert_snapshot!(plan_of(text));
}

#[test]
fn keys_that_do_not_belong() {
    assert_snapshot!(plan_of(
        "flet = \"f\"\n[defaults]\nname = \"x\"\ncolour = 1\n[[host]]\nname = \"a\"\n\
         provider = \"local\"\nsize = \"small\"\nidle_stop = \"1h\"\nbusy_lease = \"1h\"\n\
         [host.machine]\nimage = \"x\"\n[provider.docker]\ncontxt = \"y\"\n[provider.gpu]\n"
    ));
}

#[test]
fn values_of_another_kind_and_keys_of_another_table() {
    assert_snapshot!(plan_of(
        "fleet = \"f\"\n[[host]]\nname = \"a\"\nprovider = 4\nprotect = \"yes\"\nimage = \"x\"\n\
         agents = \"claude\"\nsize = { cpus = \"four\", memory = \"2g\", disk = 1.5 }\n\
         [[host]]\nname = \"b\"\nprovider = \"docker\"\nsize = { memory = \"1MiB\" }\n"
    ));
}

#[test]
fn sizes_that_are_none() {
    let sizes = ["4", "\"4\"", "\"4gb\"", "\"0.5GiB\"", "\"-1GiB\"", "\"1e9GiB\"", "\"99999TiB\""];
    let texts = sizes.map(|size| format!("{HEAD}size = {{ memory = {size} }}\n"));
    assert_snapshot!(texts.map(plan_of).join("\n"));
}

#[test]
fn durations_that_are_none() {
    let spans = ["\"30\"", "\"0s\"", "\"1h30\"", "\"off\"", "\"1d2x\"", "30"];
    let texts = spans.map(|span| format!("{HEAD}idle_stop = {span}\n"));
    assert_snapshot!(texts.map(plan_of).join("\n"));
}

#[test]
fn names_that_are_none() {
    let long = "a".repeat(41);
    let names = ["", "Dev", "a_b", "-a", "a-", &long];
    let blocks = names.map(|name| format!("[[host]]\nname = \"{name}\"\nprovider = \"local\"\n"));
    let twins = "[[host]]\nname = \"x\"\nprovider = \"local\"\n".repeat(2);
    assert_snapshot!(plan_of(format!("fleet = \"f\"\n{}{twins}", blocks.concat())));
}

#[test]
fn wishes_that_contradict_each_other() {
    assert_snapshot!(plan_of(format!("{HEAD}power = \"on\"\nidle_stop = \"1h\"\n")));
}

#[test]
fn files_that_are_no_files_of_hosts() {
    let cases: [(&str, &[u8]); 6] = [
        ("empty", b""),
        ("an unclosed table", b"fleet = \"f\"\n[[host\nname = 1\n"),
        ("a key twice", b"fleet = \"f\"\nfleet = \"g\"\n"),
        ("binary", b"\x7fELF\x02\x01\xff\xfe"),
        ("one bracket", b"fleet = \"f\"\n[host]\nname = \"a\"\n"),
        ("a text instead of a list", b"fleet = \"f\"\nhost = \"a\"\n"),
    ];
    let shown = cases.map(|(what, bytes)| format!("=== {what}\n{}", plan_of(bytes)));
    assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_file_of_more_than_a_mebibyte_is_refused_unread() {
    let text = "#".repeat((1 << 20) + 1);
    let shown = plan_of(text);
    assert!(shown.contains("is larger than 1048576 bytes"), "{shown}");
}

#[test]
fn a_missing_file_is_said_with_what_to_do() {
    let sandbox = Sandbox::new();
    let named = sandbox.run(&["plan", "--file", "none.toml"]);
    assert_snapshot!(format!("{named}\n{}", sandbox.run(&["plan"])));
}

#[test]
fn bom_crlf_and_tabs_are_read_and_kept() {
    let text = "\u{feff}fleet = \"f\"\r\n\r\n[[host]]\r\n\tname = \"dev\"\t# tab\r\n\tprovider = \"local\"\r\n";
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", text);
    let _ = sandbox.run(&["host", "create", "local", "two", "--yes"]).ok();
    let added = "\r\n[[host]]\r\nname = \"two\"\r\nprovider = \"local\"\r\n";
    assert_eq!(sandbox.read("hosts.toml"), format!("{text}{added}"));
    let _ = sandbox.run(&["host", "destroy", "two", "--yes"]).ok();
    assert_eq!(sandbox.read("hosts.toml"), text);
}

#[test]
fn a_credential_draws_a_warning_and_is_no_error() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "hosts.toml",
        "fleet = \"f\"\n[[host]]\nname = \"a\"\nprovider = \"local\"\nenv = { API_TOKEN = \"x\" }\n",
    );
    assert_snapshot!(sandbox.run(&["plan"]).ok().stderr);
}

#[test]
fn a_project_file_that_names_an_address_needs_a_word_first() {
    let sandbox = Sandbox::new();
    let text = format!("{HEAD}[provider.docker]\ncontext = \"theirs\"\n");
    sandbox.write("hosts.toml", &text);
    let refused = sandbox.run(&["plan"]);
    assert_eq!(refused.code, Some(2));
    let trusted = sandbox.run(&["trust", "--yes"]).ok();
    let again = sandbox.run(&["trust", "--yes"]).ok();
    sandbox.write("hosts.toml", text.replace("theirs", "other"));
    let changed = sandbox.run(&["plan"]);
    assert_eq!(changed.code, Some(2), "a change asks again");
    assert_snapshot!(format!("{refused}\n{trusted}\n{again}\n{changed}"));
}
