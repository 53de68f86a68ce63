//! Notifies the service manager about a mount (`Type=notify` of systemd).
//!
//! ```text
//!   NOTIFY_SOCKET=/run/…, or @abstract  ◄── READY=1, MAINPID=…    the mount can be used
//!                                       ◄── STOPPING=1            it is being unmounted
//! ```
//! Source: sd_notify(3).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that the mount can be used.
pub(super) fn ready() {
    send(&format!("READY=1\nMAINPID={}", std::process::id()));
}

/// Reports that the mount ends.
pub(super) fn stopping() {
    send("STOPPING=1");
}

/// Sends `state` to the service manager, if there is one. Errors are ignored, so that they do not
/// stop a mount.
fn send(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = address(&name)
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    drop(sent);
}

fn address(name: &OsStr) -> std::io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}
