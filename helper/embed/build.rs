//! Builds the helper for every Linux target that this toolchain can link statically, packs it, and
//! leaves a table for `src/helper_client/embedded.rs` to include.
//!
//! A target `ARCH-unknown-linux-musl` that is installed links with rust-lld on any computer; where
//! it is not, a Linux computer links its own architecture against a static glibc. What cannot be
//! built is left out: `SIMSTIM_HELPER_DIR` adds prebuilt helpers at run time.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::{Compression, write::DeflateEncoder};
use sha2::{Digest as _, Sha256};

const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// A way to link the helper for one architecture.
struct Recipe {
    architecture: &'static str,
    target: String,
    flags: Vec<String>,
}

fn main() {
    let root = PathBuf::from(env("CARGO_MANIFEST_DIR"));
    let inputs = [
        "helper/src",
        "helper/Cargo.toml",
        "helper/embed",
        "schema/src",
        "Cargo.toml",
        "Cargo.lock",
    ];
    for input in inputs {
        println!("cargo:rerun-if-changed={}", root.join(input).display());
    }
    let out = PathBuf::from(env("OUT_DIR"));
    // One folder for all profiles: the helper is always built with its own.
    let target_dir = out.ancestors().nth(4).expect("OUT_DIR is deep").join("simstim-helper");
    let mut table = String::from("&[\n");
    for recipe in ARCHITECTURES.into_iter().filter_map(recipe) {
        let binary = build(&root, &target_dir, &recipe);
        let bytes = std::fs::read(&binary).expect("the helper was just built");
        let packed = out.join(format!("simstim-host-{}.deflate", recipe.architecture));
        std::fs::write(&packed, pack(&bytes)).expect("OUT_DIR is writable");
        let mut digest = String::new();
        for byte in Sha256::digest(&bytes) {
            write!(digest, "{byte:02x}").expect("a string takes text");
        }
        writeln!(
            table,
            "Embedded {{ architecture: {:?}, digest: {digest:?}, packed: include_bytes!({:?}) }},",
            recipe.architecture,
            packed.display().to_string()
        )
        .expect("a string takes text");
    }
    table.push(']');
    std::fs::write(out.join("helpers.rs"), table).expect("OUT_DIR is writable");
}

fn recipe(architecture: &'static str) -> Option<Recipe> {
    let musl = format!("{architecture}-unknown-linux-musl");
    if sysroot().join("lib/rustlib").join(&musl).join("lib").is_dir() {
        let flags = ["-Clinker=rust-lld", "-Clinker-flavor=ld.lld", "-Ctarget-feature=+crt-static"];
        return Some(Recipe {
            architecture,
            target: musl,
            flags: flags.map(String::from).to_vec(),
        });
    }
    let gnu = format!("{architecture}-unknown-linux-gnu");
    (env("HOST") == gnu).then(|| Recipe {
        architecture,
        target: gnu,
        // Not relocatable: 50 kB less to upload.
        flags: ["-Ctarget-feature=+crt-static", "-Crelocation-model=static"]
            .map(String::from)
            .to_vec(),
    })
}

fn sysroot() -> PathBuf {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).output().expect("rustc runs");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

fn build(root: &Path, target_dir: &Path, recipe: &Recipe) -> PathBuf {
    let mut flags = recipe.flags.clone();
    // The same bytes from any folder: paths of this computer stay out of the helper.
    let cargo_home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    for (from, to) in [(Some(root.display().to_string()), "/simstim"), (cargo_home.ok(), "/cargo")]
    {
        flags.extend(from.map(|from| format!("--remap-path-prefix={from}={to}")));
    }
    let status = Command::new(env("CARGO"))
        .current_dir(root)
        .args(["build", "--locked", "--quiet", "--package", "simstim-host", "--profile", "helper"])
        .args(["--target", &recipe.target])
        .arg("--target-dir")
        .arg(target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        // A wrapper such as clippy's would check the helper instead of building it.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTFLAGS")
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the helper did not build for {}", recipe.target);
    target_dir.join(&recipe.target).join("helper/simstim-host")
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory takes bytes");
    encoder.finish().expect("memory takes bytes")
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
