//! Programs that paint whole screens, on a `local` host.

use crate::attach::Host;
use crate::support::programs;

#[test]
fn an_editor_is_found_as_it_was_left() {
    programs::an_editor_is_found_as_it_was_left(&Host::new().0, "dev");
}

#[test]
fn a_process_viewer_is_found_as_it_was_left() {
    programs::a_process_viewer_is_found_as_it_was_left(&Host::new().0, "dev");
}

#[test]
fn a_multiplexer_works_inside() {
    programs::a_multiplexer_works_inside(&Host::new().0, "dev");
}

#[test]
fn a_click_and_a_paste_arrive_as_they_were() {
    programs::a_click_and_a_paste_arrive_as_they_were(&Host::new().0, "dev");
}
