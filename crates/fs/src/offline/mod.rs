//! Work on a volume that is not in use otherwise: making, resizing and changing it, and bulk loads.

pub mod bulk;
pub mod compact;
pub mod mkfs;
pub mod resize;
pub mod tune;
