//! Problems of a file as excerpts with carets.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::cli::ui::Paper;
use crate::config::{Problem, Problems};

/// All problems, one below the other, each with its place.
pub(crate) fn render(path: &str, source: &str, problems: &Problems, paper: Paper) -> String {
    let renderer = if paper.colour { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.term_width(paper.width);
    let texts = problems.0.iter().map(|problem| one(path, source, problem, &renderer) + "\n\n");
    texts.collect()
}

fn one(path: &str, source: &str, problem: &Problem, renderer: &Renderer) -> String {
    let level = if problem.warning { Level::WARNING } else { Level::ERROR };
    let span = visible(source, problem.span.clone());
    let snippet = Snippet::source(source).path(path).annotation(AnnotationKind::Primary.span(span));
    let mut group = Group::with_title(level.primary_title(&*problem.message)).element(snippet);
    if let Some(help) = &problem.help {
        group = group.element(Level::HELP.message(&**help));
    }
    renderer.render(&[group]).clone()
}

/// A span on the borders of characters, inside the text, and on one line.
fn visible(source: &str, span: std::ops::Range<usize>) -> std::ops::Range<usize> {
    let border = |mut at: usize| {
        at = at.min(source.len());
        while !source.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = border(span.start);
    let line = source[start..].find('\n').map_or(source.len(), |at| start + at);
    start..border(span.end).clamp(start, line)
}
