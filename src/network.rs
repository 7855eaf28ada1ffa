//! Changes of this computer's network, so that who waits for it need not wait out a pause.

use tokio::net::UnixDatagram;

/// Tells when a link or an address of this computer changed. Where the system tells nothing of that
/// (it is told on Linux), it never does.
#[derive(Debug)]
pub struct Changes(Option<UnixDatagram>);

impl Changes {
    /// Begins to listen. Must be called within a runtime.
    pub fn watch() -> Self {
        Self(listen().ok())
    }

    /// Resolves at the next change; several at once are one. Cancel safe.
    pub async fn next(&mut self) {
        let mut message = [0; 4096];
        if let Some(socket) = &self.0
            && is_change(&socket.recv(&mut message).await)
        {
            while is_change(&socket.try_recv(&mut message)) {}
            return;
        }
        self.0 = None;
        std::future::pending::<()>().await;
    }
}

/// What was said does not matter, only that it was; messages that were lost (`ENOBUFS`) were said.
fn is_change(received: &std::io::Result<usize>) -> bool {
    let lost = rustix::io::Errno::NOBUFS.raw_os_error();
    received.as_ref().map_or_else(|error| error.raw_os_error() == Some(lost), |length| *length > 0)
}

/// Routing messages of the kernel, which are netlink's protocol 0: rtnetlink(7). For a program the
/// socket is one for datagrams as any other.
#[cfg(target_os = "linux")]
fn listen() -> std::io::Result<UnixDatagram> {
    use rustix::net::netlink::SocketAddrNetlink;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

    /// `RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR` of linux/rtnetlink.h.
    const GROUPS: u32 = 0x1 | 0x10 | 0x100;

    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    UnixDatagram::from_std(socket.into())
}

#[cfg(not(target_os = "linux"))]
fn listen() -> std::io::Result<UnixDatagram> {
    Err(std::io::ErrorKind::Unsupported.into())
}
