//! Where a glibc enters this program: beside the standard library's own start.
//!
//! That one prepares a message for a stack that overflows, which links glibc's scanf and all of its
//! number formats: 138 kB more to upload to every machine. Here is the rest of what it does.

#![allow(unsafe_code, reason = "a C start calls `main` by its name, and this is it")]

use std::ffi::{c_char, c_int};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, IntoRawFd as _};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;

/// From C: takes no notice of a signal.
const SIG_IGN: usize = 1;

unsafe extern "C" {
    safe fn signal(number: c_int, handler: usize) -> usize;
}

/// Called once by the C start; the standard library reads the arguments by itself.
#[unsafe(no_mangle)]
extern "C" fn main(_: c_int, _: *const *const c_char) -> c_int {
    fill_streams();
    // A stream that nobody reads any more is an error of the write, not the end of us.
    let _ = signal(Signal::PIPE.as_raw(), SIG_IGN);
    let code = crate::run();
    let _ = std::io::stdout().flush();
    code.into()
}

/// Where one of the three streams is closed, no file of ours may take its number.
fn fill_streams() {
    while let Ok(null) = open("/dev/null", OFlags::RDWR, Mode::empty()) {
        if null.as_raw_fd() > 2 {
            break;
        }
        let _ = null.into_raw_fd();
    }
}
