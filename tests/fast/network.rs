//! Changes of the network, in a network namespace of the test's own.

use std::process::Command;
use std::time::Duration;

use simstim::network::Changes;

const WITHIN: &str = "SIMSTIM_TEST_NAMESPACE";

#[test]
fn a_link_that_comes_up_is_told() {
    if std::env::var_os(WITHIN).is_none() {
        let this = std::env::current_exe().unwrap();
        let mut within = Command::new("unshare");
        within.args(["--user", "--map-root-user", "--net"]).arg(this);
        within.args(["--exact", "network::a_link_that_comes_up_is_told"]).env(WITHIN, "yes");
        let output = within.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut changes = Changes::watch();
        let quiet = tokio::time::timeout(Duration::from_millis(100), changes.next()).await;
        assert!(quiet.is_err(), "nothing changed yet");
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        tokio::time::timeout(Duration::from_secs(5), changes.next()).await.unwrap();
    });
}
