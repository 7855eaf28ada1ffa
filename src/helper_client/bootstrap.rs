//! Gets the helper onto a machine that has only a shell.
//!
//! One `sh`, fed from stdin, without a login shell. It speaks in lines that begin with a random
//! marker, so the noise of rc files is told apart, and it is sent nothing but the next expected
//! line: some shells read ahead and would eat what follows.
//!
//! ```text
//! machine  MARK probe Linux x86_64|FLEET HOST NONCE     what is there; no identity: empty
//! client   DIGEST FLEET HOST NONCE                      what should be
//! machine  MARK have                                    the helper is there and whole, or
//! machine  MARK ready                                   client sends its bytes, closes stdin
//! machine  MARK done                                    or: MARK failed WHERE
//! ```
//!
//! The upload goes to a name of its own, is checked by running it, and is renamed into place: two
//! clients at once are harmless, and a running version is not disturbed.

use std::time::Duration;

use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};

use super::{HelperError, Helpers};
use crate::model::{Architecture, Mark, hex, printable};
use crate::process::read_tail;
use crate::transport::{Command, Transport};

/// From the start of the transport to its first word.
const PROBE: Duration = Duration::from_secs(30);
/// For sending the helper over a slow line: 1.5 MB at 10 kB/s.
const UPLOAD: Duration = Duration::from_secs(150);
/// Noise of rc files that is put up with, in bytes.
const NOISE: usize = 64 * 1024;

const SCRIPT: &str = r#"{
m=@MARK@
fail() { printf '\n%s failed %s\n' "$m" "$1"; rm -f "$t"; exit 1; }
restore() { "$p" restore >/dev/null 2>&1 </dev/null; }
umask 077
d=$HOME/.local/share/simstim
printf '\n%s probe %s|%s\n' "$m" "$(uname -sm)" "$(cat "$d/identity" 2>/dev/null)"
read -r digest fleet host nonce || exit 1
t=$d/bin/.upload-$m
[ -n "$HOME" ] || fail home
rm -f "$d/idle"
mkdir -p "$d/bin" || fail folder
printf '%s %s %s\n' "$fleet" "$host" "$nonce" >"$t" && mv -f "$t" "$d/identity" || fail identity
p=$d/bin/simstim-host-$digest
if [ "$("$p" digest 2>/dev/null)" = "$digest" ]; then
  restore
  printf '\n%s have\n' "$m"
else
  printf '\n%s ready\n' "$m"
  cat >"$t" || fail upload
  chmod 700 "$t" || fail permissions
  s=$("$t" digest) || fail run
  [ "$s" = "$digest" ] || fail checksum
  mv -f "$t" "$p" || fail rename
  ln -sf "simstim-host-$digest" "$d/bin/simstim-host"
  restore
  printf '\n%s done\n' "$m"
fi
exit 0
}
"#;

/// What bootstrap found or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The machine's processor.
    pub architecture: Architecture,
    /// Bytes that were sent; none where the helper was there.
    pub sent: usize,
}

/// Installs the helper that fits, unless it is there and whole. Cancel safe: what was cut off is
/// an upload under a name that nobody uses.
///
/// # Errors
/// [`HelperError::WrongMachine`] where the machine says that it is another one, unless `fresh`: a
/// new machine may carry the identity of the one its image was made from.
pub async fn bootstrap(
    transport: &dyn Transport,
    mark: &Mark,
    helpers: &Helpers,
    fresh: bool,
) -> Result<Installed, HelperError> {
    let mut bytes = [0; 12];
    let random = getrandom::fill(&mut bytes);
    random.map_err(|error| HelperError::Install(format!("no randomness here: {error}")))?;
    let marker = format!("simstim-{}", hex(&bytes));
    let mut exec = transport.start(&Command::new(["sh"])).await?;
    let mut talk =
        Talk { marker: marker.clone(), stdout: BufReader::new(exec.stdout), noise: Vec::new() };
    let mut stderr = exec.stderr;
    let conversation = async {
        let script = SCRIPT.replace("@MARK@", &marker);
        let mut stdin = exec.stdin;
        // A transport that is gone already says so on its output.
        let _ = stdin.write_all(script.as_bytes()).await;
        let _ = stdin.flush().await;
        let probe = talk.line(PROBE).await?;
        let architecture = check_probe(&probe, mark, fresh)?;
        let digest = helpers
            .digest(&architecture)
            .ok_or_else(|| HelperError::NoHelper(architecture.clone()))?;
        let Mark { fleet, host, nonce, .. } = mark;
        let answer = format!("{digest} {fleet} {host} {nonce}\n");
        stdin.write_all(answer.as_bytes()).await.map_err(|error| lost(&error))?;
        stdin.flush().await.map_err(|error| lost(&error))?;
        let word = talk.line(PROBE).await?;
        if word == "have" {
            return Ok(Installed { architecture, sent: 0 });
        }
        if word != "ready" {
            return Err(HelperError::Install(word));
        }
        let program = helpers.program(&architecture).unwrap_or_default();
        let upload = async {
            // A full disk ends `cat` early; the script then says which step failed.
            let _ = stdin.write_all(&program).await;
            let _ = stdin.shutdown().await;
            drop(stdin);
            talk.line(UPLOAD).await
        };
        let word = tokio::time::timeout(UPLOAD, upload).await.map_err(|_| {
            HelperError::Install(format!("the upload took longer than {} s", UPLOAD.as_secs()))
        })??;
        if word == "done" {
            Ok(Installed { architecture, sent: program.len() })
        } else {
            Err(HelperError::Install(word))
        }
    };
    let result = conversation.await;
    match result {
        Ok(installed) => Ok(installed),
        Err(HelperError::Install(word)) => {
            Err(HelperError::Install(explain(&word, &said(&mut stderr).await)))
        }
        Err(HelperError::NotReached { said: printed }) => {
            let _ = tokio::time::timeout(Duration::from_secs(1), &mut exec.end).await;
            let said = [printed, said(&mut stderr).await].join(" ").trim().to_owned();
            let silent = "it printed nothing".to_owned();
            Err(HelperError::NotReached { said: if said.is_empty() { silent } else { said } })
        }
        Err(error) => Err(error),
    }
}

fn lost(error: &std::io::Error) -> HelperError {
    HelperError::Lost(error.to_string())
}

/// The end of what was said on stderr, if that ends soon.
pub(super) async fn said(stderr: &mut (dyn AsyncRead + Send + Unpin)) -> String {
    let mut tail = Vec::new();
    // What has come by then is what there is to say.
    let _ = tokio::time::timeout(Duration::from_secs(1), read_tail(stderr, &mut tail)).await;
    let tail = String::from_utf8_lossy(&tail).into_owned();
    let last: Vec<&str> = tail.lines().rev().take(3).collect();
    printable(&last.into_iter().rev().collect::<Vec<_>>().join("; "))
}

/// The first lines of noise, for messages.
pub(super) fn words(noise: &[u8]) -> String {
    let text = String::from_utf8_lossy(noise);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let words = lines.take(3).collect::<Vec<_>>().join("; ");
    words.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// What a failed step of the script means.
fn explain(word: &str, said: &str) -> String {
    let meaning = match word.strip_prefix("failed ").unwrap_or(word) {
        "home" => "it has no HOME",
        "folder" => "its home cannot be written to",
        "identity" | "upload" => "writing in its home failed (a full disk?)",
        "permissions" | "rename" => "its home does not take programs",
        "run" => "it does not run there (a home mounted noexec?)",
        "checksum" => "it did not arrive whole (a full disk?)",
        other => other,
    };
    if said.is_empty() { meaning.into() } else { format!("{meaning}: {said}") }
}

fn check_probe(probe: &str, mark: &Mark, fresh: bool) -> Result<Architecture, HelperError> {
    let (system, identity) = probe
        .strip_prefix("probe ")
        .and_then(|rest| rest.split_once('|'))
        .ok_or_else(|| HelperError::Lost(format!("it answered `{probe}`")))?;
    let architecture = match system.split_once(' ') {
        Some(("Linux", architecture)) => Architecture::new(architecture),
        _ => return Err(HelperError::NotLinux(system.chars().take(80).collect())),
    };
    let wanted = format!("{} {} {}", mark.fleet, mark.host, mark.nonce);
    if !fresh && !identity.is_empty() && identity != wanted {
        let found = identity.chars().take(200).collect();
        return Err(HelperError::WrongMachine { wanted, found });
    }
    Ok(architecture)
}

/// Reads the lines that are meant for us.
struct Talk<R> {
    marker: String,
    stdout: BufReader<R>,
    /// What else was printed, for messages.
    noise: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Talk<R> {
    async fn line(&mut self, deadline: Duration) -> Result<String, HelperError> {
        match tokio::time::timeout(deadline, self.next_line()).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(HelperError::NotReached { said: self.noise_words() }),
            Err(_) => {
                let seconds = deadline.as_secs();
                let said = format!("no answer for {seconds} s {}", self.noise_words());
                Err(HelperError::NotReached { said })
            }
        }
    }

    /// The rest of the next line with the marker; `None` at the end of the stream.
    async fn next_line(&mut self) -> Option<String> {
        loop {
            let mut line = Vec::new();
            let bounded = &mut (&mut self.stdout).take(NOISE as u64);
            let read = bounded.read_until(b'\n', &mut line).await.ok()?;
            if read == 0 {
                return None;
            }
            let text = String::from_utf8_lossy(&line);
            if let Some(rest) = text.strip_prefix(&self.marker) {
                return Some(printable(rest.trim()));
            }
            self.noise.extend_from_slice(&line);
            if self.noise.len() > NOISE {
                return None;
            }
        }
    }

    fn noise_words(&self) -> String {
        words(&self.noise)
    }
}
