//! `simstim attach`, and the attaching half of `new`.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::exec::{code_of, raw};
use super::session::{choose, wake};
use crate::cli::args::{AttachArgs, SessionName};
use crate::cli::error::CliError;
use crate::cli::open::{Open, Start, open};
use crate::cli::terminal::{DETACH, Raw, Typed, size};
use crate::cli::ui::Ui;
use crate::fleet::{ConnectError, Fleet, random};
use crate::helper_client::{
    AttachEnd, AttachRequest, Attachment, Bridge, HelperError, Purpose, Terminal,
};
use crate::model::HostName;
use crate::network::Changes;
use crate::stop::stop;

/// A connection that is back so soon needs no word.
const UNSAID: Duration = Duration::from_secs(1);
/// A connection that lived so long was of use.
const USEFUL: Duration = Duration::from_secs(10);
/// The longest pause between two tries.
const LONGEST: Duration = Duration::from_secs(5);

pub(crate) async fn run(ui: &Ui, start: &Start, args: AttachArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let wanted = match args.session {
        Some(session) => session,
        None => SessionName { host: only_host(ui, &open)?, session: None },
    };
    open.check_names([&wanted.host])?;
    let host = &wanted.host;
    check_terminal(&[format!("simstim logs -f {host}"), format!("simstim exec {host} -- CMD")])?;
    let fleet = open.fleet()?;
    let mut bridge = wake(ui, &open, &fleet, &wanted.host, Purpose::Attach).await?;
    let name = choose(ui, &mut bridge, &wanted).await?;
    let way = Way { open: &open, fleet: &fleet, host: &wanted.host };
    let seat = Seat { name, read_only: args.read_only, scrollback: args.scrollback };
    show(ui, way, bridge, seat).await
}

fn only_host(ui: &Ui, open: &Open) -> Result<HostName, CliError> {
    let hosts = &open.file.config.hosts;
    match hosts.as_slice() {
        [one] => Ok(one.name.clone()),
        many if ui.interactive && !many.is_empty() => {
            let names: Vec<String> = many.iter().map(|host| host.name.to_string()).collect();
            let chosen = ui.choose("Which host?", &names)?;
            chosen
                .map(|index| many[index].name.clone())
                .ok_or_else(|| CliError::failed("nothing was chosen"))
        }
        many => {
            let error = CliError::usage(format!("there are {} hosts; say which", many.len()));
            let hint = |error: CliError, name| error.hint(format!("simstim attach {name}"));
            Err(many.iter().take(5).map(|host| &host.name).fold(error, hint))
        }
    }
}

/// Both streams must be a person's terminal; where they are not, `instead` is what to type.
pub(super) fn check_terminal(instead: &[String]) -> Result<(), CliError> {
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        return Ok(());
    }
    let error = CliError::usage("this needs a terminal to show it in");
    Err(instead.iter().fold(error, CliError::hint))
}

/// How to get to a host, and to get there again.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) open: &'a Open,
    pub(super) fleet: &'a Fleet,
    pub(super) host: &'a HostName,
}

/// How a person sits before a session.
pub(super) struct Seat {
    pub(super) name: String,
    pub(super) read_only: bool,
    /// Lines of earlier output to see first.
    pub(super) scrollback: u32,
}

/// Why an attachment is over, other than by its own end.
enum Broken {
    Helper(HelperError),
    Connect(ConnectError),
}

/// Shows a session in this terminal until the person leaves or it ends.
pub(super) async fn show(
    ui: &Ui,
    way: Way<'_>,
    bridge: Bridge,
    seat: Seat,
) -> Result<ExitCode, CliError> {
    let host = way.host;
    let Seat { name, read_only, scrollback } = seat;
    let (mut terminate, mut hang_up) =
        (listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    let resizes = resizes()?;
    ui.say(&format!("attached to {host}/{name}; leave it with {DETACH}\n"));
    let (left, leave) = oneshot::channel();
    let terminal = Terminal {
        input: Box::new(Typed::new(raw(std::io::stdin())?, left)),
        leave,
        output: Box::new(raw(std::io::stdout())?),
        resizes,
    };
    let again = format!("simstim attach {host}/{name}");
    let (size, client) = (size(), random());
    let request = AttachRequest { name: name.clone(), size, read_only, scrollback, client };
    let ended = {
        let _raw = Raw::for_screen()?;
        let mut attachment = Attachment::start(request, terminal);
        let ended = tokio::select! {
            ended = stay(way, &mut attachment, bridge) => ended,
            _ = terminate.recv() => Ok(AttachEnd::Detached),
            _ = hang_up.recv() => Ok(AttachEnd::Detached),
        };
        attachment.finish(matches!(ended, Ok(AttachEnd::Ended(_)))).await;
        ended
    };
    match ended {
        Ok(AttachEnd::Detached) => {
            ui.say(&format!("left {host}/{name}, which goes on; back to it: {again}\n"));
            Ok(ExitCode::SUCCESS)
        }
        Ok(AttachEnd::Ended(exited)) => {
            let code = code_of(exited);
            ui.say(&format!("{host}/{name} ended with code {code}\n"));
            Ok(ExitCode::from(code))
        }
        Err(Broken::Helper(error @ HelperError::Refused(_))) => {
            let error = CliError::failed(format!("{host}: {error}"));
            Err(error.hint(format!("simstim ls {host}")))
        }
        Err(Broken::Helper(error)) => {
            Err(CliError::failed(format!("{host}: {error}; the session goes on")).hint(again))
        }
        Err(Broken::Connect(error)) => Err(error.into()),
    }
}

/// Attached over one bridge after another, for as long as the person waits.
async fn stay(
    way: Way<'_>,
    attachment: &mut Attachment,
    mut bridge: Bridge,
) -> Result<AttachEnd, Broken> {
    // Connections in a row that broke at once and were of no use.
    let mut useless = 0;
    loop {
        let (begun, before) = (Instant::now(), attachment.progress());
        match attachment.over(bridge).await {
            Ok(end) => return Ok(end),
            Err(error) if error.is_of_connection() => {}
            Err(error) => return Err(Broken::Helper(error)),
        }
        let useful = attachment.progress() > before || begun.elapsed() >= USEFUL;
        useless = if useful { 0 } else { useless + 1 };
        match reconnect(way, attachment, useless).await.map_err(Broken::Connect)? {
            Some(next) => bridge = next,
            None => return Ok(AttachEnd::Detached),
        }
    }
}

/// Another bridge to the same machine; `None` where the person leaves meanwhile.
async fn reconnect(
    way: Way<'_>,
    attachment: &mut Attachment,
    useless: u32,
) -> Result<Option<Bridge>, ConnectError> {
    let config = &way.open.file.config;
    loop {
        let (notices, mut shown) = mpsc::unbounded_channel();
        let hurry = Notify::new();
        let tries = try_again(way, useless, notices, &hurry);
        let error = match attachment.meanwhile(tries, &mut shown, &hurry).await {
            None => return Ok(None),
            Some(Ok(bridge)) => return Ok(Some(bridge)),
            Some(Err(error)) => error,
        };
        let ConnectError::NotRunning { host, state } = &error else { return Err(error) };
        attachment.notice(&format!("{host} is {state}; a key wakes it, {DETACH} leaves"));
        if !attachment.key().await {
            return Ok(None);
        }
        attachment.notice(&format!("waking {host}"));
        let (events, _) = mpsc::unbounded_channel();
        let (_stopper, stop) = stop();
        let woken = way.fleet.connect(config, way.host, Purpose::Attach, events, &stop);
        let (_, mut none) = mpsc::unbounded_channel();
        match attachment.meanwhile(woken, &mut none, &Notify::new()).await {
            None => return Ok(None),
            Some(Err(error)) if is_passing(&error) => {}
            Some(woken) => return woken.map(Some),
        }
    }
}

/// Tries until there is a connection, or a reason why there will be none. A key that is typed and a
/// change of the network end a pause.
async fn try_again(
    way: Way<'_>,
    useless: u32,
    notices: mpsc::UnboundedSender<String>,
    hurry: &Notify,
) -> Result<Bridge, ConnectError> {
    let said = async {
        sleep(UNSAID).await;
        let text = format!("no connection to {}; trying again, {DETACH} leaves", way.host);
        let _ = notices.send(text);
        std::future::pending().await
    };
    let mut network = Changes::watch();
    let tries = async {
        for attempt in useless.. {
            tokio::select! {
                () = sleep(pause(attempt, random::<1>()[0])) => {}
                () = hurry.notified() => {}
                () = network.next() => {}
            }
            match way.fleet.again(&way.open.file.config, way.host).await {
                Err(error) if is_passing(&error) => {}
                settled => return settled,
            }
        }
        unreachable!("there is always another attempt")
    };
    tokio::select! {
        bridge = tries => bridge,
        never = said => never,
    }
}

/// Whether another try may do better.
fn is_passing(error: &ConnectError) -> bool {
    match error {
        ConnectError::Helper { error, .. } => error.is_of_connection(),
        // Its account may answer again.
        ConnectError::NotUsable { .. } => true,
        _ => false,
    }
}

/// The pause before a try: none, then longer and longer, a quarter of it by chance.
fn pause(attempt: u32, chance: u8) -> Duration {
    let Some(doublings) = attempt.checked_sub(1) else { return Duration::ZERO };
    let most = LONGEST.min(Duration::from_millis(250) * 2_u32.saturating_pow(doublings));
    most.mul_f64(1.0 - 0.25 * f64::from(chance) / 255.0)
}

/// New sizes of the terminal.
pub(super) fn resizes() -> Result<mpsc::Receiver<(u16, u16)>, CliError> {
    let (resized, resizes) = mpsc::channel(4);
    let mut changes = listen(SignalKind::window_change())?;
    tokio::spawn(async move {
        while changes.recv().await.is_some() && resized.send(size()).await.is_ok() {}
    });
    Ok(resizes)
}

fn listen(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|error| CliError::failed(format!("cannot listen for signals: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let pauses: Vec<u128> = (0..8).map(|attempt| pause(attempt, 0).as_millis()).collect();
        assert_eq!(pauses, [0, 250, 500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(pause(u32::MAX, 255), Duration::from_millis(3750));
    }
}
