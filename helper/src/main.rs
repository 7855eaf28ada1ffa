//! `simstim-host`, the helper: the small program that runs on every machine.
//!
//! ```text
//! simstim-host mark working|waiting    an agent's report on its session
//! simstim-host hold 2h --why TEXT      keep the machine awake for so long
//! simstim-host release                 end every hold
//! simstim-host restore                 start sessions again that a restart ended
//! simstim-host bridge PURPOSE MARKER   speak frames over stdin and stdout
//! simstim-host digest                  the SHA-256 of this program, in hex
//! simstim-host holder NAME             keep a session (told by a bridge)
//! simstim-host terminal PROGRAM …      become a session's program (started by a holder)
//! simstim-host --version
//! ```
//!
//! It links no C code of its own and looks nobody up by libc's getpw*, getgr* or getaddrinfo: a
//! static glibc crashes in them. It knows nothing of providers, plans or `hosts.toml`.

#![cfg_attr(all(target_env = "gnu", not(test)), no_main)]

mod awake;
mod bridge;
mod charset;
#[cfg(all(target_env = "gnu", not(test)))]
mod entry;
mod holder;
mod idle;
mod link;
mod log;
mod manager;
mod marks;
mod outgoing;
mod place;
mod processes;
mod program;
mod screen;
mod sessions;
mod state;
mod terminal;
mod viewer;

use std::io::Write as _;

use crate::bridge::{Bridge, Purpose};
use crate::place::Place;

const USAGE: &str = "usage: simstim-host mark working|waiting | hold DURATION --why TEXT | release";

#[cfg(any(not(target_env = "gnu"), test))]
fn main() -> std::process::ExitCode {
    run().into()
}

/// Does what the arguments say; its exit code.
fn run() -> u8 {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["mark", state] => Place::find().and_then(|place| marks::mark(&place, state)),
        ["hold", span, "--why", why] => {
            Place::find().and_then(|place| marks::hold(&place, span, why))
        }
        ["restore"] => Place::find().map(|place| sessions::restore(&place)),
        ["release"] => Place::find().and_then(|place| marks::release(&place)),
        ["holder", name] => Place::find().and_then(|place| holder::run(&place, name)),
        ["terminal", ..] => {
            let words: Vec<_> = std::env::args_os().skip(2).collect();
            let why = terminal::become_program(&words);
            let _ = writeln!(std::io::stderr(), "simstim: {why}");
            return 127;
        }
        ["bridge", purpose, marker] => run_bridge(purpose, marker),
        ["digest"] => place::own_digest()
            .and_then(|digest| print(&digest))
            .map_err(|error| format!("cannot read this program: {error}")),
        ["--version"] => {
            print(concat!("simstim-host ", env!("CARGO_PKG_VERSION"))).map_err(|e| e.to_string())
        }
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "simstim-host: {error}");
            2
        }
    }
}

fn print(line: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{line}")
}

fn run_bridge(purpose: &str, marker: &str) -> Result<(), String> {
    let purpose = Purpose::parse(purpose).ok_or("a bridge is for `look`, `exec` or `attach`")?;
    let place = Place::find()?;
    if purpose != Purpose::Look {
        sessions::restore(&place);
    }
    let hello = place.hello(purpose.word())?;
    let bridge = Bridge::new(purpose, place, marker, hello);
    bridge.run().map_err(|error| format!("the bridge broke: {error}"))
}
