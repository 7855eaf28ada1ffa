//! The one writer to the terminal. stdout is data, stderr is talk.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};

/// What a text means, so that colour never has to say it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Something new or good.
    Good,
    /// Something changes.
    Change,
    /// Something is lost or wrong.
    Bad,
    /// Beside the point.
    Dim,
    /// To be seen first.
    Strong,
}

/// How to write text: with colour or without, and how wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paper {
    pub(crate) colour: bool,
    pub(crate) width: usize,
    /// Long cells are cut to the width, for a person; what another program reads is whole.
    pub(crate) cuts: bool,
}

impl Paper {
    /// The text in its tone.
    pub(crate) fn paint(&self, tone: Tone, text: impl std::fmt::Display) -> String {
        if !self.colour {
            return text.to_string();
        }
        let style = match tone {
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Change => AnsiColor::Yellow.on_default(),
            Tone::Bad => AnsiColor::Red.on_default(),
            Tone::Dim => Style::new().dimmed(),
            Tone::Strong => Style::new().bold(),
        };
        format!("{style}{text}{style:#}")
    }

    /// Lines of `text` that fit beside an indent of `indent` columns.
    pub(crate) fn wrap(&self, text: &str, indent: usize) -> Vec<String> {
        let width = self.width.saturating_sub(indent).max(24);
        // Words stay whole: a person copies them.
        let options = textwrap::Options::new(width)
            .word_splitter(textwrap::WordSplitter::NoHyphenation)
            .word_separator(textwrap::WordSeparator::AsciiSpace)
            .break_words(false);
        textwrap::wrap(text, options).into_iter().map(std::borrow::Cow::into_owned).collect()
    }
}

/// The terminal.
#[derive(Debug)]
pub(crate) struct Ui {
    pub(crate) out: Paper,
    pub(crate) err: Paper,
    /// The file that was named, for commands to type next.
    pub(crate) named_file: Option<PathBuf>,
    /// A person can be asked.
    pub(crate) interactive: bool,
    /// stderr is a terminal, so bars may move on it.
    pub(crate) live: bool,
}

/// The width where there is no terminal to ask.
const PLAIN_WIDTH: usize = 80;
/// Longer lines are hard to read.
const MOST_WIDTH: usize = 100;

impl Ui {
    pub(crate) fn from_env() -> Self {
        let (stdout, stderr) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colour = |terminal: bool| terminal && !set("NO_COLOR") && !dumb;
        let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let width = columns.unwrap_or(PLAIN_WIDTH).clamp(40, MOST_WIDTH);
        let paper = |terminal: bool| Paper {
            colour: colour(terminal),
            width: if terminal { width } else { PLAIN_WIDTH },
            cuts: terminal,
        };
        Self {
            named_file: None,
            out: paper(stdout),
            err: paper(stderr),
            interactive: io::stdin().is_terminal() && stderr,
            live: stderr && !dumb,
        }
    }

    /// Prints data. An error means that nobody reads it any more.
    #[expect(clippy::unused_self, reason = "only who has the terminal may write to it")]
    pub(crate) fn print(&self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    /// Says something. That nobody hears it is no error.
    #[expect(clippy::unused_self, reason = "only who has the terminal may write to it")]
    pub(crate) fn say(&self, text: &str) {
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// Asks a person for one of several by its number; `None` where the answer is none of them.
    pub(crate) fn choose(&self, question: &str, choices: &[String]) -> io::Result<Option<usize>> {
        let mut text = format!("{question}\n");
        for (index, choice) in choices.iter().enumerate() {
            text += &format!("  {:>2}  {choice}\n", index + 1);
        }
        self.say(&text);
        let typed = self.ask(&format!("1 to {}: ", choices.len()))?;
        let number: Option<usize> = typed.parse().ok();
        Ok(number.and_then(|number| number.checked_sub(1)).filter(|index| *index < choices.len()))
    }

    /// Asks a person and returns the line typed.
    pub(crate) fn ask(&self, question: &str) -> io::Result<String> {
        self.say(question);
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}
