//! Helpers that mean harm: what they say is believed as far as it makes sense, and nothing of it
//! panics, fills memory or reaches the terminal as a control sequence.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use schema::bytes::Bytes;
use schema::frame::{Encoder, MAX_DATA};
use schema::message::{
    Attached, Body, Credit, Data, Exited, Failed, Hello, LOG, Notice, Painted, Pong, SCREEN, STDIN,
    Session, Sessions, VIEW,
};
use simstim::helper_client::{
    AttachEnd, AttachRequest, Attachment, HelperError, Helpers, Purpose, Terminal, connect,
    list_sessions,
};
use simstim::model::{FleetId, HostName, Mark, Nonce, Timestamp};
use simstim::transport::{Command, Exec, Transport, TransportError};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot};

/// Messages, one after the other.
type Says = Box<dyn Fn() -> Box<dyn Iterator<Item = Body> + Send> + Send + Sync>;

/// A machine whose helper says what a test wants.
struct Machine {
    mark: Mark,
    purpose: &'static str,
    says: Says,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Machine")
    }
}

impl Machine {
    fn new<I>(purpose: &'static str, says: impl Fn() -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = Body>,
        I::IntoIter: Send + 'static,
    {
        let mark = Mark {
            fleet: FleetId::new("f").unwrap(),
            host: HostName::new("dev").unwrap(),
            nonce: Nonce::from_random([1; 16]),
            made_at: Timestamp(1),
            maker: "test".into(),
            protected: false,
            digest: String::new(),
        };
        Self { mark, purpose, says: Box::new(move || Box::new(says().into_iter())) }
    }

    fn hello(&self) -> Body {
        Body::Hello(Hello {
            fleet: self.mark.fleet.to_string(),
            host: self.mark.host.to_string(),
            nonce: self.mark.nonce.to_string(),
            protocol_min: 1,
            protocol_max: u32::MAX,
            version: "\x1b[2Jevil".into(),
            boot_id: "b".into(),
            epoch: u64::MAX,
            purpose: self.purpose.into(),
        })
    }
}

#[async_trait]
impl Transport for Machine {
    async fn start(&self, command: &Command) -> Result<Exec, TransportError> {
        let script = command.words.last().unwrap();
        let marker = script
            .split(&[' ', ';'][..])
            .find(|word| word.starts_with("simstim-") && word.len() == 32);
        let marker = marker.unwrap().to_owned();
        let (mut far, near) = tokio::io::duplex(1 << 16);
        let (hello, says) = (self.hello(), (self.says)());
        tokio::spawn(async move {
            let mut encoder = Encoder::default();
            far.write_all(marker.as_bytes()).await.unwrap();
            for body in std::iter::once(hello).chain(says) {
                let mut frame = Vec::new();
                encoder.encode(body, &mut frame).unwrap();
                if far.write_all(&frame).await.is_err() {
                    return;
                }
            }
            // It says nothing more, and stays.
            std::future::pending::<()>().await;
        });
        let (stdout, stdin) = tokio::io::split(near);
        let stderr = Box::new(tokio::io::empty());
        Ok(Exec {
            // What the person types is of no interest to it.
            stdin: {
                drop(stdin);
                Box::new(tokio::io::sink())
            },
            stdout: Box::new(stdout),
            stderr,
            end: Box::pin(std::future::pending()),
        })
    }
}

/// A terminal that takes all, once its gate is open.
#[derive(Clone, Default)]
struct Shown {
    gate: Arc<Mutex<()>>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        drop(self.gate.lock().unwrap());
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Keys without end.
struct Keys;

impl Read for Keys {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        buffer[..3].copy_from_slice(b"key");
        Ok(3)
    }
}

/// Attaches to a helper that says these, in a terminal that takes nothing until the end where it is
/// stuck; how that ended, and what was shown.
async fn attach<I>(
    stuck: bool,
    says: impl Fn() -> I + Send + Sync + 'static,
) -> (Result<AttachEnd, HelperError>, String)
where
    I: IntoIterator<Item = Body>,
    I::IntoIter: Send + 'static,
{
    let machine = Machine::new("attach", says);
    let helpers = Helpers::load(None).unwrap();
    let bridge = connect(&machine, &machine.mark, &helpers, Purpose::Attach).await.unwrap();
    let shown = Shown::default();
    let gate = stuck.then(|| shown.gate.lock().unwrap());
    let (_stays, leave) = oneshot::channel();
    let (_sizes, resizes) = mpsc::channel(1);
    let request = AttachRequest {
        name: "s".into(),
        size: (24, 80),
        read_only: false,
        scrollback: 0,
        client: [7; 16],
    };
    let (input, output) = (Box::new(Keys), Box::new(shown.clone()));
    let mut attachment = Attachment::start(request, Terminal { input, leave, output, resizes });
    let ended = tokio::time::timeout(Duration::from_secs(60), attachment.over(bridge)).await;
    drop(gate);
    attachment.finish(true).await;
    let shown = String::from_utf8_lossy(&shown.bytes.lock().unwrap()).into_owned();
    (ended.expect("it comes to an end"), shown)
}

fn attached() -> Body {
    Body::Attached(Attached { known: false, typed: 0, resumed: false })
}

fn painted(offset: u64) -> Body {
    Body::Painted(Painted { offset })
}

fn data(stream: u32, offset: u64, bytes: impl Into<Bytes>) -> Body {
    Body::Data(Data { stream, offset, bytes: bytes.into() })
}

fn exited() -> Body {
    Body::Exited(Exited { code: Some(0), signal: None })
}

#[tokio::test]
async fn wrong_offsets_and_credits_end_the_connection() {
    let cases: Vec<(&str, Vec<Body>)> = vec![
        ("a gap", vec![attached(), painted(0), data(LOG, 5, "x")]),
        ("a step back", vec![attached(), painted(9), data(LOG, 0, "x")]),
        ("the last offset", vec![attached(), painted(u64::MAX), data(LOG, u64::MAX, "xyz")]),
        ("a screen in the middle", vec![attached(), data(SCREEN, 7, "x")]),
        (
            "more typed than was",
            vec![Body::Attached(Attached { known: true, typed: 1 << 60, resumed: false })],
        ),
        (
            "on where nothing was",
            vec![Body::Attached(Attached { known: false, typed: 0, resumed: true })],
        ),
        ("another's message", vec![attached(), Body::Sessions(Sessions::default())]),
    ];
    for (what, says) in cases {
        let (ended, shown) = attach(false, move || says.clone()).await;
        assert!(ended.is_err_and(|error| error.is_of_connection()), "{what}");
        assert!(!shown.contains(&['x', 'z'][..]), "{what}: {shown}");
    }
}

#[tokio::test]
async fn output_without_end_is_stopped_at_its_credit() {
    // Nothing that the terminal does not take is asked for: beyond one window is a lie.
    let (ended, shown) = attach(true, || {
        let parts = (0_u64..).map(|part| data(LOG, part * 1000, vec![b'x'; 1000]));
        [attached(), painted(0)].into_iter().chain(parts)
    })
    .await;
    assert!(ended.is_err_and(|error| error.to_string().contains("beyond its credit")));
    assert!(shown.len() as u64 <= VIEW, "{} bytes waited", shown.len());
}

#[tokio::test]
async fn paints_and_notices_without_end_fill_no_memory() {
    for again in [false, true] {
        let (ended, shown) = attach(true, move || {
            let paint = (0_u64..).flat_map(move |part| {
                let offset = if again { 0 } else { part * MAX_DATA as u64 };
                let done = again.then(|| painted(0));
                [data(SCREEN, offset, vec![b'x'; MAX_DATA])].into_iter().chain(done)
            });
            [attached()].into_iter().chain(paint)
        })
        .await;
        assert!(ended.is_err_and(|error| error.to_string().contains("screen out of order")));
        assert!(shown.len() <= (64 << 20) + MAX_DATA, "{} bytes waited", shown.len());
    }
    let (ended, shown) = attach(true, move || {
        let notice = || Body::Notice(Notice { text: "n".repeat(100) });
        let many = (0..50_000).flat_map(move |_| [notice(), data(LOG, 0, "")]);
        [attached(), painted(0)].into_iter().chain(many).chain([exited()])
    })
    .await;
    assert!(matches!(ended, Ok(AttachEnd::Ended(_))), "{ended:?}");
    assert!(shown.len() < (1 << 20) + 1000, "{} bytes waited", shown.len());
}

#[tokio::test]
async fn words_of_ours_around_a_session_hold_no_control_characters() {
    let evil = "\x1b]0;evil\x07\x1b[2J\u{9b}31mred\r\n".repeat(50);
    let text = evil.clone();
    let (ended, shown) = attach(false, move || {
        [attached(), painted(0), Body::Notice(Notice { text: text.clone() }), exited()]
    })
    .await;
    assert!(matches!(ended, Ok(AttachEnd::Ended(_))));
    assert!(shown.starts_with("\x1b7\x1b[24;1H\x1b[0;7m]0;evil[2J31mred]0;"), "{shown:?}");
    assert!(shown.ends_with("\x1b[K\x1b[0m\x1b8") && shown.len() < 130, "{shown:?}");
    let reason = evil.clone();
    let (ended, shown) =
        attach(false, move || [Body::Failed(Failed { reason: reason.clone(), not_found: false })])
            .await;
    let said = ended.unwrap_err().to_string();
    assert!(said.contains("red") && !said.contains(char::is_control) && shown.is_empty(), "{said}");
    let session =
        Session { name: evil.clone(), command: evil.clone(), evidence: evil, ..Session::default() };
    let machine = Machine::new("look", move || {
        [Body::Sessions(Sessions { sessions: vec![session.clone()], more: false })]
    });
    let helpers = Helpers::load(None).unwrap();
    let mut bridge = connect(&machine, &machine.mark, &helpers, Purpose::Look).await.unwrap();
    let sessions = list_sessions(&mut bridge).await.unwrap();
    assert!(!format!("{sessions:?}").contains("\\u{1b}"), "{sessions:?}");
}

#[tokio::test]
async fn credits_that_make_no_sense_are_survived() {
    let credit = |limit| Body::Credit(Credit { stream: STDIN, limit });
    let (ended, _) = attach(false, move || {
        let credits = [credit(u64::MAX), credit(0), credit(5), Body::Pong(Pong {})];
        [attached(), painted(0)].into_iter().chain(credits).chain([exited()])
    })
    .await;
    assert!(matches!(ended, Ok(AttachEnd::Ended(_))), "{ended:?}");
}
