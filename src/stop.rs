//! One signal to stop, made at the top and passed down.

use tokio::sync::watch;

/// The side that gives the signal. Dropping it gives no signal.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// The side that listens. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

/// A pair of both.
pub fn stop() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Gives the signal; once is enough.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// A signal that never comes.
    pub fn never() -> Self {
        stop().1
    }

    /// Whether it was given.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for it. Cancel safe.
    pub async fn wait(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
