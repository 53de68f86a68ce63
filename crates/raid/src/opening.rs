//! How a layout is opened.

/// The options for opening a layout.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Whether the volume may be changed.
    pub write: bool,
    /// Whether a mirror may be changed while members that it counts on are missing. Those members
    /// are out of date from then on.
    pub degraded: bool,
    /// Whether transfers go to the members in parallel. If false they go to one member after the
    /// other, which makes tests repeatable.
    pub together: bool,
}

impl Opening {
    /// Opens for reading.
    pub fn read() -> Opening {
        Opening { write: false, degraded: false, together: true }
    }

    /// Opens for reading and writing.
    pub fn write() -> Opening {
        Opening { write: true, ..Opening::read() }
    }
}
