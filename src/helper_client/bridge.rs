//! One bridge: a helper process at the other end of a transport, speaking frames.

use std::time::Duration;

use schema::frame::{Decoder, Encoder, FrameError};
use schema::message::{Body, Goodbye, Hello, Welcome};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{HelperError, Helpers};
use crate::model::{Mark, hex, printable};
use crate::transport::{Command, End, Transport};

/// From the start of a transport to the helper's hello.
const HELLO: Duration = Duration::from_secs(30);
/// How long a helper may be silent, or take nothing: as long as it waits for our pings.
pub(super) const SILENCE: Duration = Duration::from_secs(30);
/// How often the helper hears that this side lives; it leaves after six missed ones.
pub(super) const PING: Duration = Duration::from_secs(5);
/// For the answer to a goodbye; what was to be said is said by then.
const GOODBYE: Duration = Duration::from_secs(5);
/// Noise before the hello that is put up with, in bytes.
const NOISE: usize = 64 * 1024;

/// What a bridge is for; it decides what the bridge holds awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Asking: holds nothing awake, installs nothing, and takes any helper that is there.
    Look,
    /// Running one program.
    Exec,
    /// Being attached to a session: only what is typed holds the machine awake.
    Attach,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Exec => "exec",
            Self::Attach => "attach",
        }
    }
}

/// A bridge that said its hello and was found to be the right machine's.
pub struct Bridge {
    /// Messages from the helper.
    pub reader: FrameReader,
    /// Messages to the helper.
    pub writer: FrameWriter,
    /// What the machine said of itself.
    pub hello: Hello,
    stderr: Box<dyn AsyncRead + Send + Unpin>,
    end: End,
}

/// Reads frames. [`FrameReader::next`] is cancel safe.
pub struct FrameReader {
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    decoder: Decoder,
}

/// Writes frames.
pub struct FrameWriter {
    stdin: Box<dyn AsyncWrite + Send + Unpin>,
    encoder: Encoder,
    buffer: Vec<u8>,
}

impl FrameReader {
    /// The next message. Cancel safe.
    ///
    /// # Errors
    /// [`HelperError::Lost`] at the end of the stream: a bridge ends with a goodbye, never by
    /// itself.
    pub async fn next(&mut self) -> Result<Body, HelperError> {
        loop {
            let message = self.decoder.next_message();
            if let Some(body) = message.map_err(|error| HelperError::Lost(error.to_string()))? {
                return Ok(body);
            }
            match self.stdout.read_buf(self.decoder.space()).await {
                Ok(0) => return Err(HelperError::Lost("the stream ended".into())),
                Ok(_) => {}
                Err(error) => return Err(HelperError::Lost(error.to_string())),
            }
        }
    }
}

impl FrameWriter {
    /// Sends a message. Not cancel safe: a frame cut in half ends the bridge.
    pub async fn send(&mut self, body: Body) -> Result<(), HelperError> {
        self.buffer.clear();
        let encoded = self.encoder.encode(body, &mut self.buffer);
        encoded.map_err(|error| match error {
            FrameError::TooLong(length) => HelperError::TooLong(length),
            error => HelperError::Lost(error.to_string()),
        })?;
        let write = async {
            self.stdin.write_all(&self.buffer).await?;
            self.stdin.flush().await
        };
        // A helper always reads; one that does not for so long is gone or stands still.
        match tokio::time::timeout(SILENCE, write).await {
            Ok(written) => written.map_err(|error| HelperError::Lost(error.to_string())),
            Err(_) => {
                Err(HelperError::Lost(format!("nothing was taken for {} s", SILENCE.as_secs())))
            }
        }
    }
}

/// Opens a bridge to the machine of a mark.
///
/// # Errors
/// [`HelperError::NotInstalled`] where no helper of this version is there (for
/// [`Purpose::Look`]: none at all).
pub async fn connect(
    transport: &dyn Transport,
    mark: &Mark,
    helpers: &Helpers,
    purpose: Purpose,
) -> Result<Bridge, HelperError> {
    let mut bytes = [0; 12];
    let random = getrandom::fill(&mut bytes);
    random.map_err(|error| HelperError::Lost(format!("no randomness here: {error}")))?;
    let marker = format!("simstim-{}", hex(&bytes));
    let exec = transport.start(&command(helpers, purpose, &marker)).await?;
    let mut bridge = Bridge {
        reader: FrameReader { stdout: exec.stdout, decoder: Decoder::default() },
        writer: FrameWriter { stdin: exec.stdin, encoder: Encoder::default(), buffer: Vec::new() },
        hello: Hello::default(),
        stderr: exec.stderr,
        end: Box::pin(std::future::pending()),
    };
    let mut end = exec.end;
    let hello = bridge.reader.hello(&marker);
    let hello = match tokio::time::timeout(HELLO, hello).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(noise)) => return Err(not_reached(&mut bridge, &mut end, &noise).await),
        Err(_) => {
            let said = format!("no hello for {} s", HELLO.as_secs());
            return Err(HelperError::NotReached { said });
        }
    };
    bridge.end = end;
    check(&hello, mark, purpose)?;
    let protocol = schema::agree(hello.protocol_min, hello.protocol_max).ok_or_else(|| {
        HelperError::Protocol(printable(&hello.version).chars().take(40).collect())
    })?;
    let version = env!("CARGO_PKG_VERSION").into();
    bridge.writer.send(Body::Welcome(Welcome { protocol, version })).await?;
    bridge.hello = hello;
    Ok(bridge)
}

/// Starts the first helper of ours that is there. The text holds no quote, backslash or line break,
/// so that it means the same behind any login shell; an empty IFS keeps a home with spaces whole.
fn command(helpers: &Helpers, purpose: Purpose, marker: &str) -> Command {
    let mut names: Vec<String> =
        helpers.digests().map(|digest| format!("simstim-host-{digest}")).collect();
    if purpose == Purpose::Look {
        names.push("simstim-host".into());
    }
    let names = names.join(" ");
    let word = purpose.word();
    let script = format!(
        "d=$HOME/.local/share/simstim/bin; for n in {names}; do IFS=; \
         test -x $d/$n && exec $d/$n bridge {word} {marker}; done; exit 127"
    );
    Command::new(["sh", "-c", &script])
}

impl FrameReader {
    /// Skips noise up to the marker and reads the hello; the error is the noise.
    async fn hello(&mut self, marker: &str) -> Result<Hello, Vec<u8>> {
        let mut seen: Vec<u8> = Vec::new();
        loop {
            let found = seen.windows(marker.len()).position(|part| part == marker.as_bytes());
            if let Some(at) = found {
                self.decoder.push(&seen[at + marker.len()..]);
                break;
            }
            let read = self.stdout.read_buf(&mut seen).await.unwrap_or(0);
            if read == 0 || seen.len() > NOISE {
                return Err(seen);
            }
        }
        match self.next().await {
            Ok(Body::Hello(hello)) => Ok(hello),
            Ok(_) => Err(b"its first message was no hello".to_vec()),
            Err(HelperError::Lost(why)) => {
                Err(format!("its first words make no sense: {why}").into_bytes())
            }
            Err(error) => Err(error.to_string().into_bytes()),
        }
    }
}

async fn not_reached(bridge: &mut Bridge, end: &mut End, noise: &[u8]) -> HelperError {
    let code = tokio::time::timeout(Duration::from_secs(1), end).await;
    let said = super::bootstrap::said(&mut *bridge.stderr).await;
    let noise = super::bootstrap::words(noise);
    if let Ok(Ok(Some(127))) = code
        && noise.is_empty()
        && said.is_empty()
    {
        return HelperError::NotInstalled;
    }
    let said = [noise, said].join(" ").trim().to_owned();
    let said = if said.is_empty() { "the stream ended before a hello".into() } else { said };
    HelperError::NotReached { said }
}

fn check(hello: &Hello, mark: &Mark, purpose: Purpose) -> Result<(), HelperError> {
    let wanted = format!("{} {} {}", mark.fleet, mark.host, mark.nonce);
    let found = format!("{} {} {}", hello.fleet, hello.host, hello.nonce);
    if wanted != found {
        let found = found.chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(HelperError::WrongMachine { wanted, found });
    }
    if hello.purpose != purpose.word() {
        return Err(HelperError::Lost("the bridge is for something else".into()));
    }
    Ok(())
}

impl Bridge {
    /// Ends the bridge and waits until the helper has said that nothing is missing.
    pub async fn goodbye(mut self) -> Result<(), HelperError> {
        self.writer.send(Body::Goodbye(Goodbye {})).await?;
        let answer = async {
            loop {
                if let Body::GoodbyeAck(_) = self.reader.next().await? {
                    return Ok(());
                }
            }
        };
        tokio::time::timeout(GOODBYE, answer)
            .await
            .unwrap_or_else(|_| Err(HelperError::Lost("no answer to the goodbye".into())))
    }
}
