//! How far the reading of sources has come, for whoever draws a bar.

/// Told about progress, from several threads at once and often: implementations add to atomic
/// counters and draw elsewhere.
pub trait Progress: Sync {
    /// `count` more entries were listed.
    fn entries(&self, count: u64) {
        let _ = count;
    }

    /// `count` more bytes of file data were listed, or read when an archive is spooled.
    fn bytes(&self, count: u64) {
        let _ = count;
    }
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {}
